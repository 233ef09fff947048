// SPDX-License-Identifier: BSD-3-Clause
//
// TLS by the machine's OpenSSL, which is loaded when it is first needed: a program that speaks to
// no etcd over https needs none.  Versions 3 and 1.1 serve; what is used of them is the same in
// both.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "store/base/error.h"

namespace ddprun::rendezvous::etcd {

// Files are PEM; an empty path means none.
struct TlsFiles {
  std::string ca;  // who may have signed the server's certificate; else those the system trusts
  std::string certificate;  // of this client, and those that lead up to it
  std::string key;          // of the certificate; empty: it is in the same file
};

// What sessions have in common.  Threads: may be made on any thread, which must be one that may
// wait for a disk; sessions are used from one thread at a time.
class TlsContext {
 public:
  // Fails with Errc::NotSupported where there is no OpenSSL, with Errc::InvalidInput where a file
  // cannot be used; both say which.
  static Result<std::shared_ptr<TlsContext>> make(const TlsFiles& files);
  ~TlsContext();

  struct Library;

 private:
  friend class TlsSession;
  explicit TlsContext(const Library& library) : library_(library) {}

  const Library& library_;
  void* context_ = nullptr;
};

// One connection, without its socket: what is to be sent is taken, what has come is given.
class TlsSession {
 public:
  // `host`: a name or an address, of which the server's certificate must be.  Fails with
  // Errc::InvalidInput for one that cannot be checked.
  static Result<std::unique_ptr<TlsSession>> make(std::shared_ptr<TlsContext> context,
                                                  const std::string& host);
  ~TlsSession();

  // Goes on with the handshake; false: more bytes are needed.  Fails with Errc::Protocol and why
  // there can be no connection.
  Result<bool> shake_hands();

  // To be sent as soon as the handshake is done.
  Result<void> seal(std::string_view text);

  // Appends what has come in whole.  False: the server has closed its side.
  Result<bool> open(std::string& text);

  void give(std::string_view bytes);  // from the socket
  std::string take();                 // for the socket; empty: nothing

 private:
  explicit TlsSession(std::shared_ptr<TlsContext> context) : context_(std::move(context)) {}
  const TlsContext::Library& library() const { return context_->library_; }
  Error failure(const std::string& what) const;

  std::shared_ptr<TlsContext> context_;
  void* session_ = nullptr;
  void* in_ = nullptr;   // the session's
  void* out_ = nullptr;  // the session's
};

}  // namespace ddprun::rendezvous::etcd
