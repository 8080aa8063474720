#include "cache/http.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include <curl/curl.h>
#include <dlfcn.h>
#include <unistd.h>

#include "system/signals_as_errors.h"

namespace sparsekiln::cache {
namespace {

/// The functions that are used here, of the library that was found.
struct CurlApi {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_easy_reset) easy_reset = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_multi_init) multi_init = nullptr;
  decltype(&curl_multi_cleanup) multi_cleanup = nullptr;
  decltype(&curl_multi_add_handle) multi_add_handle = nullptr;
  decltype(&curl_multi_remove_handle) multi_remove_handle = nullptr;
  decltype(&curl_multi_perform) multi_perform = nullptr;
  decltype(&curl_multi_poll) multi_poll = nullptr;
  decltype(&curl_multi_info_read) multi_info_read = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
};

template <class Function>
bool load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool load_all(void* library, CurlApi& api) {
  return load(library, "curl_global_init", api.global_init) &&
         load(library, "curl_easy_init", api.easy_init) &&
         load(library, "curl_easy_cleanup", api.easy_cleanup) &&
         load(library, "curl_easy_reset", api.easy_reset) &&
         load(library, "curl_easy_setopt", api.easy_setopt) &&
         load(library, "curl_easy_getinfo", api.easy_getinfo) &&
         load(library, "curl_easy_strerror", api.easy_strerror) &&
         load(library, "curl_multi_init", api.multi_init) &&
         load(library, "curl_multi_cleanup", api.multi_cleanup) &&
         load(library, "curl_multi_add_handle", api.multi_add_handle) &&
         load(library, "curl_multi_remove_handle", api.multi_remove_handle) &&
         load(library, "curl_multi_perform", api.multi_perform) &&
         load(library, "curl_multi_poll", api.multi_poll) &&
         load(library, "curl_multi_info_read", api.multi_info_read) &&
         load(library, "curl_slist_append", api.slist_append) &&
         load(library, "curl_slist_free_all", api.slist_free_all);
}

/// Never unloaded: threads may be in it when the process ends.
bool load(CurlApi& api, std::string& why) {
  void* library = nullptr;
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"})
    if (library = dlopen(name, RTLD_NOW | RTLD_LOCAL); library != nullptr) break;
  if (library == nullptr)
    why = "libcurl.so.4 was not found; on Debian, apt-get install libcurl4 gets it";
  else if (!load_all(library, api) || api.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    why = "libcurl.so.4 is older than 7.66, or does not start";
  return why.empty();
}

/// A body that arrives.
struct Arriving {
  std::vector<std::byte>& body;
  std::size_t most;
};
std::size_t take(char* data, std::size_t size, std::size_t count, void* user) noexcept {
  auto& arriving = *static_cast<Arriving*>(user);
  const std::size_t bytes = size * count;
  if (bytes > arriving.most - arriving.body.size()) return 0;  // fewer than offered: libcurl gives up
  try {
    const auto* const begin = reinterpret_cast<const std::byte*>(data);
    arriving.body.insert(arriving.body.end(), begin, begin + bytes);
    return bytes;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}
std::size_t take_nothing(char*, std::size_t size, std::size_t count, void*) { return size * count; }

/// A body that is sent.
std::size_t give(char* to, std::size_t size, std::size_t count, void* user) {
  auto& left = *static_cast<std::span<const std::byte>*>(user);
  const std::size_t bytes = std::min(size * count, left.size());
  if (bytes > 0) std::memcpy(to, left.data(), bytes);
  left = left.subspan(bytes);
  return bytes;
}

/// How often a request that waits looks whether it is cancelled.
constexpr std::chrono::milliseconds kLook{20};

class CurlClient final : public HttpClient {
 public:
  CurlClient(const CurlApi& api, std::string authorities) : api_(api), authorities_(std::move(authorities)) {}
  ~CurlClient() override {
    if (process_ != ::getpid()) return;  // a forked child must not close its parent's connections
    for (const Line& line : idle_) {
      api_.easy_cleanup(line.easy);
      api_.multi_cleanup(line.multi);
    }
  }

  HttpAnswer get(const std::string& url, std::chrono::milliseconds patience,
                 std::size_t most_bytes) override {
    HttpAnswer answer;
    Arriving arriving{answer.body, most_bytes};
    request(answer, url, patience, nullptr, [&](CURL* easy) {
      api_.easy_setopt(easy, CURLOPT_WRITEFUNCTION, take);
      api_.easy_setopt(easy, CURLOPT_WRITEDATA, &arriving);
    });
    return answer;
  }

  HttpAnswer put(const std::string& url, std::span<const std::byte> body, std::chrono::milliseconds patience,
                 const std::atomic<bool>& cancelled) override {
    HttpAnswer answer;
    auto left = body;
    // Waiting for "100 Continue" would cost a second where servers do not answer it.
    const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
        api_.slist_append(nullptr, "Expect:"), api_.slist_free_all);
    request(answer, url, patience, &cancelled, [&](CURL* easy) {
      api_.easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_nothing);
      api_.easy_setopt(easy, CURLOPT_UPLOAD, 1L);
      api_.easy_setopt(easy, CURLOPT_READFUNCTION, give);
      api_.easy_setopt(easy, CURLOPT_READDATA, &left);
      api_.easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(body.size()));
      api_.easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());
    });
    return answer;
  }

 private:
  /// A request at a time, and the connection that stays open after it.
  struct Line {
    CURLM* multi;
    CURL* easy;
  };

  /// A request that does not end in time is left where it is, and nothing of it is touched again: to clean up
  /// would wait for a name server that does not answer, and so would libcurl's own time-outs. Few are left
  /// so, since they are failures.
  template <class SetUp>
  void request(HttpAnswer& answer, const std::string& url, std::chrono::milliseconds patience,
               const std::atomic<bool>* cancelled, SetUp set_up) {
    // TLS libraries write to sockets without saying that they want no SIGPIPE.
    const SignalsAsErrors signals_as_errors;
    const Line line = take_line();
    if (line.easy == nullptr || line.multi == nullptr) {
      answer.problem = "libcurl has no memory";
      return;
    }
    api_.easy_reset(line.easy);
    api_.easy_setopt(line.easy, CURLOPT_URL, url.c_str());
    api_.easy_setopt(line.easy, CURLOPT_NOSIGNAL, 1L);
    api_.easy_setopt(line.easy, CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BASIC));
    api_.easy_setopt(line.easy, CURLOPT_USERAGENT, "sparsekiln/" SPARSEKILN_VERSION);
    if (!authorities_.empty()) api_.easy_setopt(line.easy, CURLOPT_CAINFO, authorities_.c_str());
    set_up(line.easy);
    api_.multi_add_handle(line.multi, line.easy);
    const std::optional<CURLcode> code = perform(line, patience, cancelled);
    if (!code) {
      answer.problem = "it does not answer in time";
      answer.body.clear();
      return;
    }
    if (*code == CURLE_OK)
      api_.easy_getinfo(line.easy, CURLINFO_RESPONSE_CODE, &answer.status);
    else
      answer.problem = api_.easy_strerror(*code);
    api_.multi_remove_handle(line.multi, line.easy);
    const std::lock_guard lock(mutex_);
    idle_.push_back(line);
  }

  /// What came of it; nothing if it was left.
  std::optional<CURLcode> perform(const Line& line, std::chrono::milliseconds patience,
                                  const std::atomic<bool>* cancelled) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (true) {
      int running = 0;
      if (api_.multi_perform(line.multi, &running) != CURLM_OK) return std::nullopt;
      if (running == 0) {
        int others = 0;
        const CURLMsg* const message = api_.multi_info_read(line.multi, &others);
        return message == nullptr ? CURLE_FAILED_INIT : message->data.result;
      }
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      if (left.count() <= 0 || (cancelled != nullptr && *cancelled)) return std::nullopt;
      api_.multi_poll(line.multi, nullptr, 0, static_cast<int>(std::min(left, kLook).count()) + 1, nullptr);
    }
  }

  Line take_line() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return {api_.multi_init(), api_.easy_init()};
    const Line line = idle_.back();
    idle_.pop_back();
    return line;
  }

  const CurlApi api_;
  const std::string authorities_;
  const pid_t process_ = ::getpid();
  std::mutex mutex_;
  std::vector<Line> idle_;
};

}  // namespace

std::shared_ptr<HttpClient> HttpClient::make(std::string authorities, std::string& why) {
  static std::string problem;
  static const std::optional<CurlApi> api = []() -> std::optional<CurlApi> {
    CurlApi found;
    return load(found, problem) ? std::optional(found) : std::nullopt;
  }();
  why = problem;
  return api ? std::make_shared<CurlClient>(*api, std::move(authorities)) : nullptr;
}

}  // namespace sparsekiln::cache
