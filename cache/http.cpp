#include "cache/http.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include <curl/curl.h>
#include <dlfcn.h>
#include <unistd.h>

namespace sparsekiln::cache {
namespace {

/// The functions that are used here, of the library that was found.
struct CurlApi {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_easy_reset) easy_reset = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
};

template <class Function>
bool load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

/// Never unloaded: threads may be in it when the process ends.
bool load(CurlApi& api, std::string& why) {
  void* library = nullptr;
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"})
    if (library = dlopen(name, RTLD_NOW | RTLD_LOCAL); library != nullptr) break;
  if (library == nullptr) {
    why = "libcurl.so.4 was not found; on Debian, apt-get install libcurl4 gets it";
    return false;
  }
  const bool complete = load(library, "curl_global_init", api.global_init) &&
                        load(library, "curl_easy_init", api.easy_init) &&
                        load(library, "curl_easy_cleanup", api.easy_cleanup) &&
                        load(library, "curl_easy_reset", api.easy_reset) &&
                        load(library, "curl_easy_setopt", api.easy_setopt) &&
                        load(library, "curl_easy_perform", api.easy_perform) &&
                        load(library, "curl_easy_getinfo", api.easy_getinfo) &&
                        load(library, "curl_easy_strerror", api.easy_strerror) &&
                        load(library, "curl_slist_append", api.slist_append) &&
                        load(library, "curl_slist_free_all", api.slist_free_all);
  if (!complete || api.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    why = "libcurl.so.4 lacks functions, or does not start";
    return false;
  }
  return true;
}

/// A body that arrives.
struct Arriving {
  std::vector<std::byte>& body;
  std::size_t most;
};
std::size_t take(char* data, std::size_t size, std::size_t count, void* user) {
  auto& arriving = *static_cast<Arriving*>(user);
  const std::size_t bytes = size * count;
  if (bytes > arriving.most - arriving.body.size()) return 0;  // fewer than offered: libcurl gives up
  const auto* const begin = reinterpret_cast<const std::byte*>(data);
  arriving.body.insert(arriving.body.end(), begin, begin + bytes);
  return bytes;
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
int stops(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const std::atomic<bool>*>(user)->load() ? 1 : 0;
}

/// What it takes to connect; beyond it, a server is taken for one that is not there.
constexpr long kConnectMs = 250;

class CurlClient final : public HttpClient {
 public:
  explicit CurlClient(const CurlApi& api) : api_(api) {}
  ~CurlClient() override {
    if (process_ != ::getpid()) return;
    for (CURL* handle : idle_) api_.easy_cleanup(handle);
  }

  HttpAnswer get(const std::string& url, std::chrono::milliseconds patience,
                 std::size_t most_bytes) override {
    HttpAnswer answer;
    Arriving arriving{answer.body, most_bytes};
    with_handle(answer, url, patience, [&](CURL* handle) {
      api_.easy_setopt(handle, CURLOPT_WRITEFUNCTION, take);
      api_.easy_setopt(handle, CURLOPT_WRITEDATA, &arriving);
      return api_.easy_perform(handle);
    });
    return answer;
  }

  HttpAnswer put(const std::string& url, std::span<const std::byte> body, std::chrono::milliseconds patience,
                 const std::atomic<bool>& cancelled) override {
    HttpAnswer answer;
    auto left = body;
    with_handle(answer, url, patience, [&](CURL* handle) {
      api_.easy_setopt(handle, CURLOPT_WRITEFUNCTION, take_nothing);
      api_.easy_setopt(handle, CURLOPT_UPLOAD, 1L);
      api_.easy_setopt(handle, CURLOPT_READFUNCTION, give);
      api_.easy_setopt(handle, CURLOPT_READDATA, &left);
      api_.easy_setopt(handle, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(body.size()));
      api_.easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
      api_.easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, stops);
      api_.easy_setopt(handle, CURLOPT_XFERINFODATA, &cancelled);
      // Waiting for "100 Continue" would cost a second where servers do not answer it.
      curl_slist* const headers = api_.slist_append(nullptr, "Expect:");
      api_.easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
      const CURLcode code = api_.easy_perform(handle);
      api_.slist_free_all(headers);
      return code;
    });
    return answer;
  }

 private:
  /// Connections stay open with their handles.
  template <class Perform>
  void with_handle(HttpAnswer& answer, const std::string& url, std::chrono::milliseconds patience,
                   Perform perform) {
    CURL* const handle = take_handle();
    if (handle == nullptr) {
      answer.problem = "libcurl has no memory";
      return;
    }
    api_.easy_reset(handle);
    api_.easy_setopt(handle, CURLOPT_URL, url.c_str());
    api_.easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    api_.easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, kConnectMs);
    api_.easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(patience.count()));
    api_.easy_setopt(handle, CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BASIC));
    api_.easy_setopt(handle, CURLOPT_USERAGENT, "sparsekiln/" SPARSEKILN_VERSION);
    const CURLcode code = perform(handle);
    if (code == CURLE_OK)
      api_.easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &answer.status);
    else
      answer.problem = api_.easy_strerror(code);
    const std::lock_guard lock(mutex_);
    idle_.push_back(handle);
  }

  CURL* take_handle() {
    const std::lock_guard lock(mutex_);
    // A forked child must not speak on its parent's connections, nor close them properly.
    if (const pid_t now = ::getpid(); now != std::exchange(process_, now)) idle_.clear();
    if (idle_.empty()) return api_.easy_init();
    CURL* const handle = idle_.back();
    idle_.pop_back();
    return handle;
  }

  const CurlApi api_;
  std::mutex mutex_;
  pid_t process_ = ::getpid();  ///< that the idle handles are of
  std::vector<CURL*> idle_;
};

}  // namespace

std::shared_ptr<HttpClient> HttpClient::shared(std::string& why) {
  static std::string problem;
  static const std::shared_ptr<HttpClient> client = []() -> std::shared_ptr<HttpClient> {
    CurlApi api;
    return load(api, problem) ? std::make_shared<CurlClient>(api) : nullptr;
  }();
  why = problem;
  return client;
}

}  // namespace sparsekiln::cache
