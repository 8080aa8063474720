#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/http.h"
#include "cache/identity.h"
#include "cache/signing.h"

namespace sparsekiln::cache {

/// A shared level of the cache, asked after the folder: an HTTP or HTTPS server that answers GET and PUT,
/// such as nginx with WebDAV or bazel-remote. Thread-safe; a forked child does without it. What the server
/// does throws nothing, and costs a process less than a second in all: a GET has a time-out, after a failure
/// the server is left alone for a while, and for good once GETs have lost too much time. docs/cache.md says
/// what is trusted.
class Remote {
 public:
  struct Settings {
    std::string url;  ///< http:// or https://, of a folder: entries are beside one another in it
    Keys keys;
    bool believes_unsigned = false;
  };
  /// What SPARSEKILN_REMOTE, SPARSEKILN_REMOTE_KEY, SPARSEKILN_REMOTE_UNSIGNED and SPARSEKILN_REMOTE_CA say;
  /// null where the first is not set, or where the others leave nothing to believe or libcurl is missing:
  /// `complaint` then says so. Neither that nor anything else here shows the URL's name and password.
  [[nodiscard]] static std::shared_ptr<Remote> from_environment(std::string& complaint);

  Remote(Settings settings, std::shared_ptr<HttpClient> client);
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;
  /// Waits for what is being sent, a third of a second at most.
  ~Remote();

  /// The payload that the server has under exactly this identity, if its signature is believed and `accept`
  /// can use it. Everything else is a miss.
  [[nodiscard]] std::optional<std::vector<std::byte>> get(
      const Identity& identity, const std::function<bool(std::span<const std::byte>)>& accept);
  /// Sends an entry to the server, in the background, where sends(). It must have been made here: it is
  /// signed.
  void put(const Identity& identity, std::span<const std::byte> payload);
  /// Returns when everything was sent or given up.
  void wait();

  struct Counters {
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
    std::uint64_t sent = 0;
    std::uint64_t refused = 0;   ///< entries whose signature or content was not believed
    std::uint64_t failures = 0;  ///< requests without an answer, or with one that is an error
  };
  [[nodiscard]] Counters counters() const;
  /// The URL without name and password.
  [[nodiscard]] const std::string& place() const;
  /// Why the last request failed, or an entry was not believed; empty if none was.
  [[nodiscard]] std::string problem() const;
  /// Whether what is compiled here is sent.
  [[nodiscard]] bool sends() const;
  [[nodiscard]] bool believes_unsigned() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A URL without name and password: "https://…@host/x" becomes "https://host/x". Nothing before the last @ is
/// shown.
[[nodiscard]] std::string without_secrets(const std::string& url);

/// The name of an entry on a server: 64 hexadecimal digits, as bazel-remote wants.
[[nodiscard]] std::string remote_name(const Identity& identity);

/// An entry as a server stores it, signed if `keys` sign.
[[nodiscard]] std::vector<std::byte> seal(const Identity& identity, std::span<const std::byte> payload,
                                          const Keys& keys);
/// The payload of what came from a server under this identity; empty, and `why`, where it is not to be
/// believed. Reads with bounds: the bytes may be anything.
[[nodiscard]] std::optional<std::vector<std::byte>> unseal(const Identity& identity,
                                                           std::span<const std::byte> bytes, const Keys& keys,
                                                           bool believes_unsigned, std::string& why);

}  // namespace sparsekiln::cache
