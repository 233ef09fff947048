// SPDX-License-Identifier: BSD-3-Clause
//
// Preloaded into ddprun by stall_test.py: a disk that stands still.  While the file $FROZEN_GATE
// exists, each call that changes, reads, closes or looks at something below $FROZEN_FOLDER waits,
// and so does the exec of $FROZEN_PROGRAM and the look-up of $FROZEN_NAME by any thread but the
// first. SIGKILL and SIGTERM end the wait of what handles neither.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

template <class Function>
Function next_of(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

void wait_while_frozen() {
  const char* gate = std::getenv("FROZEN_GATE");
  struct stat info = {};
  while (gate != nullptr && ::stat(gate, &info) == 0) {
    timespec pause{.tv_sec = 0, .tv_nsec = 10'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

void touch(const char* path) {
  const char* folder = std::getenv("FROZEN_FOLDER");
  if (folder != nullptr && std::strncmp(path, folder, std::strlen(folder)) == 0)
    wait_while_frozen();
}

void touch(int fd) {
  char link[32];
  char path[PATH_MAX + 1];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t count = ::readlink(link, path, PATH_MAX);
  if (count <= 0) return;
  path[count] = '\0';
  touch(path);
}

// What a call of open() has behind the flags.
mode_t mode_of(int flags, va_list rest) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
}

}  // namespace

extern "C" {
// The C library has names of its own for these.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)

ssize_t write(int fd, const void* bytes, size_t count) {
  static auto next = next_of<ssize_t (*)(int, const void*, size_t)>("write");
  touch(fd);
  return next(fd, bytes, count);
}

int close(int fd) {
  static auto next = next_of<int (*)(int)>("close");
  touch(fd);
  return next(fd);
}

ssize_t read(int fd, void* bytes, size_t count) {
  static auto next = next_of<ssize_t (*)(int, void*, size_t)>("read");
  touch(fd);
  return next(fd, bytes, count);
}

ssize_t pread(int fd, void* bytes, size_t count, off_t offset) {
  static auto next = next_of<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  touch(fd);
  return next(fd, bytes, count, offset);
}

ssize_t pread64(int fd, void* bytes, size_t count, off64_t offset) {
  static auto next = next_of<ssize_t (*)(int, void*, size_t, off64_t)>("pread64");
  touch(fd);
  return next(fd, bytes, count, offset);
}

int stat(const char* path, struct stat* info) noexcept {
  static auto next = next_of<int (*)(const char*, struct stat*)>("stat");
  touch(path);
  return next(path, info);
}

int stat64(const char* path, struct stat64* info) noexcept {
  static auto next = next_of<int (*)(const char*, struct stat64*)>("stat64");
  touch(path);
  return next(path, info);
}

int access(const char* path, int mode) noexcept {
  static auto next = next_of<int (*)(const char*, int)>("access");
  touch(path);
  return next(path, mode);
}

DIR* opendir(const char* path) {
  static auto next = next_of<DIR* (*)(const char*)>("opendir");
  touch(path);
  return next(path);
}

int open(const char* path, int flags, ...) {
  static auto next = next_of<int (*)(const char*, int, mode_t)>("open");
  va_list rest;
  va_start(rest, flags);
  mode_t mode = mode_of(flags, rest);
  va_end(rest);
  touch(path);
  return next(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  static auto next = next_of<int (*)(const char*, int, mode_t)>("open64");
  va_list rest;
  va_start(rest, flags);
  mode_t mode = mode_of(flags, rest);
  va_end(rest);
  touch(path);
  return next(path, flags, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  static auto next = next_of<FILE* (*)(const char*, const char*)>("fopen64");
  touch(path);
  return next(path, mode);
}

FILE* fopen(const char* path, const char* mode) {
  static auto next = next_of<FILE* (*)(const char*, const char*)>("fopen");
  touch(path);
  return next(path, mode);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto next = next_of<int (*)(const char*, mode_t)>("mkdir");
  touch(path);
  return next(path, mode);
}

int rename(const char* from, const char* to) noexcept {
  static auto next = next_of<int (*)(const char*, const char*)>("rename");
  touch(to);
  return next(from, to);
}

int unlink(const char* path) noexcept {
  static auto next = next_of<int (*)(const char*)>("unlink");
  touch(path);
  return next(path);
}

int rmdir(const char* path) noexcept {
  static auto next = next_of<int (*)(const char*)>("rmdir");
  touch(path);
  return next(path);
}

int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** found) {
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static auto next = next_of<Function>("getaddrinfo");
  const char* frozen = std::getenv("FROZEN_NAME");
  bool is_frozen = frozen != nullptr && name != nullptr && std::strcmp(name, frozen) == 0;
  if (is_frozen && ::gettid() != ::getpid()) {
    wait_while_frozen();
    return EAI_AGAIN;
  }
  return next(is_frozen ? "127.0.0.1" : name, service, hints, found);
}

int execve(const char* path, char* const argv[], char* const environment[]) noexcept {
  static auto next = next_of<int (*)(const char*, char* const[], char* const[])>("execve");
  const char* program = std::getenv("FROZEN_PROGRAM");
  if (program != nullptr && std::strcmp(path, program) == 0) wait_while_frozen();
  return next(path, argv, environment);
}

// NOLINTEND(readability-inconsistent-declaration-parameter-name)
}
