#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sparsekiln::cache {

/// What a server has answered.
struct HttpAnswer {
  long status = 0;      ///< 0: there was no answer
  std::string problem;  ///< why there was none, without addresses and secrets
  std::vector<std::byte> body;
};

/// Asks HTTP and HTTPS servers, through the system's libcurl, which is loaded when the first client is made.
/// Certificates are checked as that library is set up. Redirections are
/// not followed; proxies are those of the environment. Thread-safe, but not for a forked child.
class HttpClient {
 public:
  /// `authorities`: file of certificates to believe; empty: the system's. Null where there is no libcurl, and
  /// `why` then says so.
  [[nodiscard]] static std::shared_ptr<HttpClient> make(std::string authorities, std::string& why);

  virtual ~HttpClient() = default;
  /// The body of what is at a URL, as far as it has at most `most_bytes`: more count as no answer.
  [[nodiscard]] virtual HttpAnswer get(const std::string& url, std::chrono::milliseconds patience,
                                       std::size_t most_bytes) = 0;
  /// Stores a body there. Gives up 20 ms after `*cancelled` has become true.
  [[nodiscard]] virtual HttpAnswer put(const std::string& url, std::span<const std::byte> body,
                                       std::chrono::milliseconds patience,
                                       const std::atomic<bool>& cancelled) = 0;
};

}  // namespace sparsekiln::cache
