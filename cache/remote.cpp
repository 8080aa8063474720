#include "cache/remote.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <unistd.h>

namespace sparsekiln::cache {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// How long a request may take.
constexpr milliseconds kPatience{400};
/// What all requests of a process may lose together. An answer is worth waiting for, but only so long.
constexpr milliseconds kMostLost{500};
constexpr milliseconds kWorthWaiting{40};
/// How long the server is left alone after a request that failed; twice as long after the next.
constexpr milliseconds kFirstPause{1000};
constexpr milliseconds kLongestPause{60000};
/// What the end of a process may wait for what is being sent.
constexpr milliseconds kLastWait{300};
constexpr std::size_t kMostBytes = std::size_t{256} << 20;  // of an entry
constexpr std::size_t kMostQueued = std::size_t{64} << 20;  // that wait to be sent
/// Requests in the background, which no caller waits for.
constexpr milliseconds kSending{10000};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool is_url(const std::string& url) { return url.starts_with("http://") || url.starts_with("https://"); }

/// How much time requests have lost, and whether to ask again.
class LostTime {
 public:
  /// How long the next request may take; 0: there is to be none.
  [[nodiscard]] milliseconds left() {
    const std::lock_guard lock(mutex_);
    if (Clock::now() < next_) return milliseconds{0};
    return std::max(std::min(kPatience, kMostLost - lost_), milliseconds{0});
  }
  void spent(Clock::duration time, bool failed) {
    const auto ms = std::chrono::duration_cast<milliseconds>(time);
    const std::lock_guard lock(mutex_);
    lost_ += failed ? ms : std::max(ms - kWorthWaiting, milliseconds{0});
    if (!failed) {
      pause_ = kFirstPause;
      return;
    }
    next_ = Clock::now() + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
  }
  [[nodiscard]] bool is_over() {
    const std::lock_guard lock(mutex_);
    return lost_ >= kMostLost;
  }

 private:
  std::mutex mutex_;
  milliseconds lost_{0};
  milliseconds pause_ = kFirstPause;
  Clock::time_point next_;
};

}  // namespace

struct Remote::State {
  State(Settings given, std::shared_ptr<HttpClient> with)
      : settings(std::move(given)), client(std::move(with)), place(without_secrets(settings.url)) {
    while (settings.url.ends_with('/')) settings.url.pop_back();
  }

  Settings settings;
  std::shared_ptr<HttpClient> client;
  const std::string place;
  const pid_t process = ::getpid();  // a forked child has no thread that sends
  LostTime lost;

  std::atomic<std::uint64_t> hits = 0;
  std::atomic<std::uint64_t> misses = 0;
  std::atomic<std::uint64_t> sent = 0;
  std::atomic<std::uint64_t> refused = 0;
  std::atomic<std::uint64_t> failures = 0;

  struct Sending {
    std::string name;
    std::vector<std::byte> bytes;
  };
  mutable std::mutex mutex;  // protects the members below
  std::condition_variable changed;
  std::string problem;
  std::deque<Sending> queue;
  std::size_t queued = 0;  // bytes
  bool busy = false;
  bool ends = false;
  bool sends = true;  // until the server refuses it
  std::thread thread;
  std::atomic<bool> cancelled = false;

  [[nodiscard]] std::string url_of(const std::string& name) const { return settings.url + "/" + name; }

  void remember(std::string why) {
    const std::lock_guard lock(mutex);
    problem = std::move(why);
  }

  void fail(const HttpAnswer& answer) {
    ++failures;
    remember(answer.status == 0 ? answer.problem : fmt::format("the server answers {}", answer.status));
  }

  /// Sends what is queued, until the end. A server that fails once is sent nothing more.
  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return ends || !queue.empty(); });
      if (queue.empty()) return;
      const Sending next = std::move(queue.front());
      queue.pop_front();
      queued -= next.bytes.size();
      if (!sends || cancelled) continue;
      busy = true;
      lock.unlock();
      const HttpAnswer answer = client->put(url_of(next.name), next.bytes, kSending, cancelled);
      const bool done = answer.status >= 200 && answer.status < 300;
      if (done)
        ++sent;
      else if (!cancelled)
        fail(answer);
      lock.lock();
      busy = false;
      sends = sends && done;
      changed.notify_all();
    }
  }
};

Remote::Remote(Settings settings, std::shared_ptr<HttpClient> client)
    : state_(std::make_unique<State>(std::move(settings), std::move(client))) {}

Remote::~Remote() {
  if (state_->process != ::getpid()) {  // its thread is the parent's
    static_cast<void>(state_.release());
    return;
  }
  {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait_for(lock, kLastWait, [&] { return state_->queue.empty() && !state_->busy; });
    state_->ends = true;
    state_->cancelled = true;
    state_->queue.clear();
    state_->queued = 0;
  }
  state_->changed.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
}

std::shared_ptr<Remote> Remote::from_environment(std::string& complaint) {
  complaint.clear();
  Settings settings;
  settings.url = variable("SPARSEKILN_REMOTE");
  if (settings.url.empty()) return nullptr;
  const auto refuse = [&](std::string why) {
    complaint = fmt::format("the shared level of the cache is not used: {}", why);
    return nullptr;
  };
  if (!is_url(settings.url)) return refuse("SPARSEKILN_REMOTE begins with neither http:// nor https://");
  settings.believes_unsigned = variable("SPARSEKILN_REMOTE_UNSIGNED") == "1";
  try {
    if (const std::string file = variable("SPARSEKILN_REMOTE_KEY"); !file.empty())
      settings.keys = Keys::read(file);
    else if (!settings.believes_unsigned)
      return refuse(
          "SPARSEKILN_REMOTE_KEY names no file with keys to check its entries by; `sparsekiln cache key "
          "FILE` "
          "makes one, and SPARSEKILN_REMOTE_UNSIGNED=1 would believe anything the server has");
  } catch (const Error& error) {
    return refuse(error.what());
  }
  std::string why;
  auto client = HttpClient::shared(why);
  if (client == nullptr) return refuse(why);
  return std::make_shared<Remote>(std::move(settings), std::move(client));
}

std::optional<std::vector<std::byte>> Remote::get(
    const Identity& identity, const std::function<bool(std::span<const std::byte>)>& accept) {
  const milliseconds patience = state_->lost.left();
  if (patience <= milliseconds{0}) return std::nullopt;
  const auto begin = Clock::now();
  const HttpAnswer answer = state_->client->get(state_->url_of(remote_name(identity)), patience, kMostBytes);
  const bool failed = answer.status != 200 && answer.status != 404;
  state_->lost.spent(Clock::now() - begin, failed);
  if (failed) state_->fail(answer);
  if (answer.status == 404) ++state_->misses;
  if (answer.status != 200) return std::nullopt;
  std::string why;
  auto payload =
      unseal(identity, answer.body, state_->settings.keys, state_->settings.believes_unsigned, why);
  if (!payload) {
    ++state_->refused;
    state_->remember(why);
    return std::nullopt;
  }
  if (!accept(*payload)) {  // it was made by another NVRTC, say
    ++state_->misses;
    return std::nullopt;
  }
  ++state_->hits;
  return payload;
}

void Remote::put(const Identity& identity, std::span<const std::byte> payload) {
  if (!signs() || state_->process != ::getpid() || state_->lost.is_over()) return;
  State::Sending sending{remote_name(identity), seal(identity, payload, state_->settings.keys)};
  const std::lock_guard lock(state_->mutex);
  if (!state_->sends || state_->queued + sending.bytes.size() > kMostQueued) return;
  state_->queued += sending.bytes.size();
  state_->queue.push_back(std::move(sending));
  try {
    if (!state_->thread.joinable()) state_->thread = std::thread([this] { state_->run(); });
  } catch (const std::system_error&) {  // no thread, so nothing is sent
    state_->sends = false;
    state_->queue.clear();
    state_->queued = 0;
  }
  state_->changed.notify_all();
}

void Remote::wait() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->queue.empty() && !state_->busy; });
}

Remote::Counters Remote::counters() const {
  return {state_->hits, state_->misses, state_->sent, state_->refused, state_->failures};
}

const std::string& Remote::place() const { return state_->place; }

std::string Remote::problem() const {
  const std::lock_guard lock(state_->mutex);
  return state_->problem;
}

bool Remote::signs() const { return state_->settings.keys.signs() || state_->settings.believes_unsigned; }

std::string without_secrets(const std::string& url) {
  const std::size_t scheme = url.find("://");
  if (scheme == std::string::npos) return "";
  const std::size_t begin = scheme + 3;
  const std::size_t end = std::min(url.find_first_of("/?#", begin), url.size());
  const std::size_t at = url.rfind('@', end);
  const std::string host = at == std::string::npos || at < begin ? url.substr(begin, end - begin)
                                                                 : url.substr(at + 1, end - at - 1);
  const std::size_t query = std::min(url.find_first_of("?#", end), url.size());
  return url.substr(0, begin) + host + url.substr(end, query - end);
}

}  // namespace sparsekiln::cache
