// SPDX-License-Identifier: BSD-3-Clause
#include "store/auth/munge.h"

#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace ddprun::store {
namespace {

// What libmunge(3) says of itself: the numbers and types of its interface, version 2.
constexpr int kSuccess = 0;
constexpr int kSnafu = 1;
constexpr int kNoMemory = 5;
constexpr int kNoDaemon = 6;
constexpr int kTimeout = 7;
constexpr int kExpired = 15;
constexpr int kRewound = 16;
constexpr int kReplayed = 17;
constexpr int kOfOtherUser = 18;
constexpr int kOptSocket = 8;  // a const char*
constexpr int kOptUserRestriction = 9;

constexpr std::string_view kPurpose = "ddprun secret 1 ";

// What libmunge hands over is free()d.
struct Freed {
  void operator()(void* memory) const { std::free(memory); }
};

}  // namespace

struct Munge::Library {
  using Context = void*;

  void* handle = nullptr;
  std::string socket;
  Context (*ctx_create)() = nullptr;
  void (*ctx_destroy)(Context) = nullptr;
  int (*ctx_set)(Context, int, ...) = nullptr;
  int (*ctx_get)(Context, int, ...) = nullptr;
  int (*encode)(char**, Context, const void*, int) = nullptr;
  int (*decode)(const char*, Context, void**, int*, uid_t*, gid_t*) = nullptr;
  const char* (*strerror)(int) = nullptr;

  ~Library() {
    if (handle != nullptr) ::dlclose(handle);
  }

  template <class Function>
  bool find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(::dlsym(handle, name));
    return function != nullptr;
  }

  // A context with this process's munged; nullptr where there is no memory for it.
  Context make_context() const {
    Context context = ctx_create();
    if (context == nullptr || socket.empty()) return context;
    if (ctx_set(context, kOptSocket, socket.c_str()) == kSuccess) return context;
    ctx_destroy(context);
    return nullptr;
  }

  std::string socket_path() const {
    Context context = make_context();
    if (context == nullptr) return socket;
    const char* path = nullptr;
    ctx_get(context, kOptSocket, &path);
    std::string text = path != nullptr ? path : "";
    ctx_destroy(context);
    return text;
  }

  Error failure(int status) const {
    bool may_pass =
        status == kNoDaemon || status == kTimeout || status == kNoMemory || status == kSnafu;
    return {may_pass ? Errc::Closed : Errc::Protocol, std::string("MUNGE: ") + strerror(status)};
  }
};

Munge::Munge(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Munge::~Munge() = default;
Munge::Munge(Munge&&) noexcept = default;
Munge& Munge::operator=(Munge&&) noexcept = default;

Result<Munge> Munge::load(const std::string& socket) {
  auto library = std::make_unique<Library>();
  library->socket = socket;
  library->handle = ::dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library->handle == nullptr)
    return Error{Errc::NotSupported, std::string("MUNGE: ") + ::dlerror()};
  bool is_whole = library->find("munge_ctx_create", library->ctx_create) &&
                  library->find("munge_ctx_destroy", library->ctx_destroy) &&
                  library->find("munge_ctx_set", library->ctx_set) &&
                  library->find("munge_ctx_get", library->ctx_get) &&
                  library->find("munge_encode", library->encode) &&
                  library->find("munge_decode", library->decode) &&
                  library->find("munge_strerror", library->strerror);
  if (!is_whole) return Error{Errc::NotSupported, "MUNGE: libmunge.so.2 lacks a function"};
  std::string path = library->socket_path();
  if (::access(path.c_str(), F_OK) != 0)
    return Error{Errc::NotSupported, "MUNGE: there is no munged (" + path + ")"};
  return Munge(std::move(library));
}

Result<std::string> Munge::seal(const Secret& secret) const {
  const std::string text = std::string(kPurpose) + secret.key_text();
  Library::Context context = library_->make_context();
  if (context == nullptr) return Error{Errc::Closed, "MUNGE: no memory"};
  char* credential = nullptr;
  // Without the restriction any user of the cluster could open it.
  int status = library_->ctx_set(context, kOptUserRestriction, ::geteuid());
  if (status == kSuccess)
    status = library_->encode(&credential, context, text.data(), static_cast<int>(text.size()));
  std::unique_ptr<char, Freed> owned(credential);
  library_->ctx_destroy(context);
  if (status != kSuccess) return library_->failure(status);
  return std::string(credential);
}

// A credential is opened on each node, by each connection.  That it was opened before, is old, or
// is of a machine whose clock is ahead does not matter: it says who has made it, and the handshake
// shows that he is there.
Result<Secret> Munge::open(const std::string& credential) const {
  Library::Context context = library_->make_context();
  if (context == nullptr) return Error{Errc::Closed, "MUNGE: no memory"};
  void* data = nullptr;
  int size = 0;
  uid_t user = static_cast<uid_t>(-1);
  gid_t group = 0;
  int status = library_->decode(credential.c_str(), context, &data, &size, &user, &group);
  std::unique_ptr<void, Freed> owned(data);
  library_->ctx_destroy(context);
  if (status == kOfOtherUser)
    return Error{Errc::Protocol, "it is run by another user of the cluster (MUNGE)"};
  bool is_genuine =
      status == kSuccess || status == kExpired || status == kRewound || status == kReplayed;
  if (!is_genuine) return library_->failure(status);
  if (user != ::geteuid()) {
    return Error{Errc::Protocol,
                 "it is run by user " + std::to_string(user) + " of the cluster (MUNGE)"};
  }
  std::string_view text(static_cast<const char*>(data),
                        data != nullptr ? static_cast<std::size_t>(size) : 0);
  if (!text.starts_with(kPurpose))
    return Error{Errc::Protocol, "MUNGE: a credential of another program"};
  return Secret::from_key_text(text.substr(kPurpose.size()));
}

}  // namespace ddprun::store
