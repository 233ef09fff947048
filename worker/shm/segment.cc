// SPDX-License-Identifier: BSD-3-Clause
#include "worker/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ddprun::ddp::shm {
namespace {

constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;
constexpr std::size_t kTokenBytes = 16;

// At the segment's beginning.
struct SegmentHeader {
  char token[2 * kTokenBytes];
};
static_assert(sizeof(SegmentHeader) <= kHeaderBytes);

std::string random_token() {
  unsigned char bytes[kTokenBytes];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return "";
  std::string text;
  for (unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

Error failure(std::string context) {
  return system_error(errno, std::move(context));
}

}  // namespace

Segment::~Segment() {
  close_descriptor();
  if (memory_) ::munmap(memory_, layout_.total_bytes());
}

void Segment::close_descriptor() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<void> Segment::map(int fd) {
  void* memory = ::mmap(nullptr, layout_.total_bytes(), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) return failure("map shared memory");
  memory_ = static_cast<std::byte*>(memory);
  return {};
}

// fallocate() reserves the pages now, so that a lack of memory is an error here and not a SIGBUS
// later.
Result<std::unique_ptr<Segment>> Segment::create(const Layout& layout) {
  std::unique_ptr<Segment> segment(new Segment(layout));
  segment->fd_ = ::memfd_create("ddprun-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (segment->fd_ < 0) return failure("make shared memory");
  if (::fallocate(segment->fd_, 0, 0, static_cast<off_t>(layout.total_bytes())) != 0) {
    return failure("reserve " + std::to_string(layout.total_bytes()) + " bytes of shared memory");
  }
  if (::fcntl(segment->fd_, F_ADD_SEALS, kSeals) != 0) return failure("seal shared memory");
  if (Result<void> mapped = segment->map(segment->fd_); !mapped) return mapped.error();
  const std::string token = random_token();
  if (token.empty()) return failure("draw random numbers");
  token.copy(reinterpret_cast<SegmentHeader*>(segment->memory_)->token,
             sizeof(SegmentHeader::token));
  return segment;
}

Result<std::unique_ptr<Segment>> Segment::open(const Address& address, const Layout& layout) {
  std::unique_ptr<Segment> segment(new Segment(layout));
  const std::string path =
      "/proc/" + std::to_string(address.pid) + "/fd/" + std::to_string(address.fd);
  segment->fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (segment->fd_ < 0) return failure("open " + path);
  const Error wrong{make_error_code(Errc::Protocol), path + " is not the group's shared memory"};
  struct stat status {};
  if (::fstat(segment->fd_, &status) != 0) return failure("look at " + path);
  // The kernel may add seals of its own (F_SEAL_EXEC, by vm.memfd_noexec).
  const int seals = ::fcntl(segment->fd_, F_GET_SEALS);
  const bool is_sealed = seals >= 0 && (seals & kSeals) == kSeals;
  if (!is_sealed || static_cast<std::size_t>(status.st_size) != layout.total_bytes()) return wrong;
  if (Result<void> mapped = segment->map(segment->fd_); !mapped) return mapped.error();
  const char* token = reinterpret_cast<const SegmentHeader*>(segment->memory_)->token;
  if (address.token != std::string(token, sizeof(SegmentHeader::token))) return wrong;
  segment->close_descriptor();
  return segment;
}

Address Segment::address() const {
  const char* token = reinterpret_cast<const SegmentHeader*>(memory_)->token;
  return {.pid = ::getpid(), .fd = fd_, .token = std::string(token, sizeof(SegmentHeader::token))};
}

RankHeader& Segment::rank_header(int rank) const {
  return *reinterpret_cast<RankHeader*>(memory_ + layout_.rank_header_begin(rank));
}

Fingerprint& Segment::fingerprint(int rank, std::uint64_t chunk) const {
  return *reinterpret_cast<Fingerprint*>(memory_ + layout_.slot_begin(rank, chunk));
}

std::byte* Segment::data(int rank, std::uint64_t chunk) const {
  return memory_ + layout_.data_begin(rank, chunk);
}

}  // namespace ddprun::ddp::shm
