// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/tls.h"

#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <vector>

#include "store/base/endpoint.h"
#include "store/base/text.h"

namespace ddprun::rendezvous::etcd {
namespace {

// OpenSSL's numbers, the same in 1.1 and 3.
constexpr int kSetMinVersion = 123;  // SSL_CTRL_SET_MIN_PROTO_VERSION
constexpr long kTls12 = 0x0303;
constexpr int kSetHostName = 55;  // SSL_CTRL_SET_TLSEXT_HOSTNAME
constexpr int kPem = 1;           // SSL_FILETYPE_PEM
constexpr int kVerifyPeer = 1;
constexpr int kErrorWantRead = 2;
constexpr int kErrorWantWrite = 3;
constexpr int kErrorZeroReturn = 6;
constexpr long kVerifyOk = 0;  // X509_V_OK

constexpr std::size_t kBlockBytes = 16 * 1024;

// A key that has a passphrase would be asked for on the terminal.
int no_passphrase(char*, int, int, void*) {
  return -1;
}

}  // namespace

struct TlsContext::Library {
  using Password = int (*)(char*, int, int, void*);

  void* handle = nullptr;
  std::string problem;

  const void* (*client_method)() = nullptr;
  void* (*context_new)(const void*) = nullptr;
  void (*context_free)(void*) = nullptr;
  long (*context_ctrl)(void*, int, long, void*) = nullptr;
  void (*set_password)(void*, Password) = nullptr;
  int (*load_ca)(void*, const char*, const char*) = nullptr;
  int (*default_ca)(void*) = nullptr;
  int (*use_certificate)(void*, const char*) = nullptr;
  int (*use_key)(void*, const char*, int) = nullptr;
  void (*set_verify)(void*, int, void*) = nullptr;
  void* (*session_new)(void*) = nullptr;
  void (*session_free)(void*) = nullptr;
  void (*set_bio)(void*, void*, void*) = nullptr;
  void (*set_connect_state)(void*) = nullptr;
  long (*session_ctrl)(void*, int, long, void*) = nullptr;
  int (*set_host)(void*, const char*) = nullptr;
  void* (*param_of)(void*) = nullptr;
  int (*do_handshake)(void*) = nullptr;
  int (*read)(void*, void*, int) = nullptr;
  int (*write)(void*, const void*, int) = nullptr;
  int (*error_of)(const void*, int) = nullptr;
  long (*verify_result)(const void*) = nullptr;
  int (*set_ip)(void*, const char*) = nullptr;
  const char* (*verify_text)(long) = nullptr;
  void* (*bio_new)(const void*) = nullptr;
  const void* (*bio_memory)() = nullptr;
  int (*bio_read)(void*, void*, int) = nullptr;
  int (*bio_write)(void*, const void*, int) = nullptr;
  void (*clear_errors)() = nullptr;
  unsigned long (*last_error)() = nullptr;
  const char* (*reason)(unsigned long) = nullptr;

  // It stays loaded: OpenSSL cleans up when the program ends.
  Library() {
    for (const char* name : {"libssl.so.3", "libssl.so.1.1"}) {
      handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (handle != nullptr) break;
      if (problem.empty()) problem = ::dlerror();
    }
    if (handle == nullptr) return;
    problem.clear();
    find("TLS_client_method", client_method);
    find("SSL_CTX_new", context_new);
    find("SSL_CTX_free", context_free);
    find("SSL_CTX_ctrl", context_ctrl);
    find("SSL_CTX_set_default_passwd_cb", set_password);
    find("SSL_CTX_load_verify_locations", load_ca);
    find("SSL_CTX_set_default_verify_paths", default_ca);
    find("SSL_CTX_use_certificate_chain_file", use_certificate);
    find("SSL_CTX_use_PrivateKey_file", use_key);
    find("SSL_CTX_set_verify", set_verify);
    find("SSL_new", session_new);
    find("SSL_free", session_free);
    find("SSL_set_bio", set_bio);
    find("SSL_set_connect_state", set_connect_state);
    find("SSL_ctrl", session_ctrl);
    find("SSL_set1_host", set_host);
    find("SSL_get0_param", param_of);
    find("SSL_do_handshake", do_handshake);
    find("SSL_read", read);
    find("SSL_write", write);
    find("SSL_get_error", error_of);
    find("SSL_get_verify_result", verify_result);
    // Of libcrypto, which comes with it.
    find("X509_VERIFY_PARAM_set1_ip_asc", set_ip);
    find("X509_verify_cert_error_string", verify_text);
    find("BIO_new", bio_new);
    find("BIO_s_mem", bio_memory);
    find("BIO_read", bio_read);
    find("BIO_write", bio_write);
    find("ERR_clear_error", clear_errors);
    find("ERR_peek_last_error", last_error);
    find("ERR_reason_error_string", reason);
  }

  template <class Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(handle, name));
    if (function == nullptr && problem.empty()) problem = std::string("OpenSSL lacks ") + name;
  }

  std::string why() const {
    const char* text = reason(last_error());
    return text != nullptr ? printable(text) : "no reason is known";
  }

  static const Library& get() {
    static const Library library;
    return library;
  }
};

Result<std::shared_ptr<TlsContext>> TlsContext::make(const TlsFiles& files) {
  const Library& library = Library::get();
  if (!library.problem.empty())
    return Error{Errc::NotSupported, "https needs OpenSSL 3 or 1.1: " + library.problem};
  library.clear_errors();
  std::shared_ptr<TlsContext> made(new TlsContext(library));
  made->context_ = library.context_new(library.client_method());
  if (made->context_ == nullptr) return Error{Errc::NotSupported, "OpenSSL: " + library.why()};
  void* context = made->context_;
  if (library.context_ctrl(context, kSetMinVersion, kTls12, nullptr) != 1)
    return Error{Errc::NotSupported, "OpenSSL: " + library.why()};
  library.set_password(context, no_passphrase);
  library.set_verify(context, kVerifyPeer, nullptr);
  auto unusable = [&](const std::string& what, const std::string& path) {
    return Error{Errc::InvalidInput,
                 what + (path.empty() ? "" : " " + path) + ": " + library.why()};
  };
  if (files.ca.empty()) {
    if (library.default_ca(context) != 1) return unusable("the system's CA certificates", "");
  } else if (library.load_ca(context, files.ca.c_str(), nullptr) != 1) {
    return unusable("the CA certificate", files.ca);
  }
  if (files.certificate.empty()) return made;
  if (library.use_certificate(context, files.certificate.c_str()) != 1)
    return unusable("the client certificate", files.certificate);
  const std::string& key = files.key.empty() ? files.certificate : files.key;
  if (library.use_key(context, key.c_str(), kPem) != 1)
    return unusable("the key of the client certificate", key);
  return made;
}

TlsContext::~TlsContext() {
  if (context_ != nullptr) library_.context_free(context_);
}

Result<std::unique_ptr<TlsSession>> TlsSession::make(std::shared_ptr<TlsContext> context,
                                                     const std::string& host) {
  std::unique_ptr<TlsSession> made(new TlsSession(std::move(context)));
  const TlsContext::Library& library = made->library();
  library.clear_errors();
  made->session_ = library.session_new(made->context_->context_);
  if (made->session_ == nullptr) return Error{Errc::LimitExceeded, "OpenSSL: " + library.why()};
  made->in_ = library.bio_new(library.bio_memory());
  made->out_ = library.bio_new(library.bio_memory());
  library.set_bio(made->session_, made->in_, made->out_);  // owns both from here on
  if (made->in_ == nullptr || made->out_ == nullptr)
    return Error{Errc::LimitExceeded, "OpenSSL: " + library.why()};
  library.set_connect_state(made->session_);
  bool is_numeric = is_numeric_host(host);
  int status = 0;
  if (is_numeric) {
    status = library.set_ip(library.param_of(made->session_), host.c_str());
  } else {
    std::string name = host;
    library.session_ctrl(made->session_, kSetHostName, 0, name.data());
    status = library.set_host(made->session_, host.c_str());
  }
  if (status != 1)
    return Error{Errc::InvalidInput, "no certificate can be of the host '" + host + "'"};
  return made;
}

TlsSession::~TlsSession() {
  if (session_ != nullptr) library().session_free(session_);
}

Error TlsSession::failure(const std::string& what) const {
  long verified = library().verify_result(session_);
  std::string why =
      verified == kVerifyOk ? library().why() : std::string(library().verify_text(verified));
  return {Errc::Protocol, "TLS: " + what + why};
}

Result<bool> TlsSession::shake_hands() {
  library().clear_errors();
  int status = library().do_handshake(session_);
  if (status == 1) return true;
  int error = library().error_of(session_, status);
  if (error == kErrorWantRead || error == kErrorWantWrite) return false;
  bool is_certificate = library().verify_result(session_) != kVerifyOk;
  return failure(is_certificate ? "its certificate is not accepted: " : "");
}

Result<void> TlsSession::seal(std::string_view text) {
  while (!text.empty()) {
    int size = static_cast<int>(std::min<std::size_t>(text.size(), INT_MAX));
    library().clear_errors();
    int written = library().write(session_, text.data(), size);
    if (written <= 0) return failure("");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<bool> TlsSession::open(std::string& text) {
  std::vector<char> block(kBlockBytes);
  while (true) {
    library().clear_errors();
    int count = library().read(session_, block.data(), static_cast<int>(block.size()));
    if (count > 0) {
      text.append(block.data(), static_cast<std::size_t>(count));
      continue;
    }
    int error = library().error_of(session_, count);
    if (error == kErrorWantRead || error == kErrorWantWrite) return true;
    if (error == kErrorZeroReturn) return false;
    return failure("");
  }
}

void TlsSession::give(std::string_view bytes) {
  while (!bytes.empty()) {
    int size = static_cast<int>(std::min<std::size_t>(bytes.size(), INT_MAX));
    int written = library().bio_write(in_, bytes.data(), size);
    if (written <= 0) return;  // no memory: the handshake or open() then lacks bytes
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string TlsSession::take() {
  std::string bytes;
  std::vector<char> block(kBlockBytes);
  while (true) {
    int count = library().bio_read(out_, block.data(), static_cast<int>(block.size()));
    if (count <= 0) return bytes;
    bytes.append(block.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace ddprun::rendezvous::etcd
