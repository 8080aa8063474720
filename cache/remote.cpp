#include "cache/remote.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <unistd.h>

namespace sparsekiln::cache {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// How long a GET may take.
constexpr milliseconds kPatience{400};
/// What all GETs of a process may lose together; this much of each miss is for nothing.
constexpr milliseconds kMostLost{500};
constexpr milliseconds kFree{10};
/// How long the server is left alone after a request that failed; twice as long after the next.
constexpr milliseconds kFirstPause{1000};
constexpr milliseconds kLongestPause{60000};
/// What the end of a process may wait for what is being sent.
constexpr milliseconds kLastWait{300};
constexpr std::size_t kMostBytes = std::size_t{64} << 20;  // of an entry, and of all that wait to be sent
/// How long a PUT may take, for which no caller waits.
constexpr milliseconds kSending{10000};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

/// How much time GETs have lost, and whether to ask again.
class LostTime {
 public:
  /// How long the next GET may take; 0: there is to be none.
  [[nodiscard]] milliseconds left() {
    const std::lock_guard lock(mutex_);
    if (Clock::now() < next_) return milliseconds{0};
    return std::max(std::min(kPatience, kMostLost - lost_), milliseconds{0});
  }
  /// Whether the server is left alone for a while.
  [[nodiscard]] bool pauses() {
    const std::lock_guard lock(mutex_);
    return Clock::now() < next_;
  }
  void missed(Clock::duration time) { add(std::max(in_ms(time) - kFree, milliseconds{0})); }
  /// Also by an entry that is not believed.
  void failed(Clock::duration time) {
    add(in_ms(time));
    const std::lock_guard lock(mutex_);
    next_ = Clock::now() + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
  }

 private:
  static milliseconds in_ms(Clock::duration time) { return std::chrono::duration_cast<milliseconds>(time); }
  void add(milliseconds time) {
    const std::lock_guard lock(mutex_);
    lost_ += time;
  }

  std::mutex mutex_;
  milliseconds lost_{0};
  milliseconds pause_ = kFirstPause;
  Clock::time_point next_;
};

/// Why a URL is none for a shared level; empty where it is one. Names are appended to it, so it ends with a
/// path; and its name and password are found whatever is in them.
std::string refusal_of(const std::string& url) {
  const std::size_t scheme = url.starts_with("https://") ? 8 : url.starts_with("http://") ? 7 : 0;
  if (scheme == 0) return "SPARSEKILN_REMOTE begins with neither http:// nor https://";
  if (url.find_first_of("?# \t\r\n") != std::string::npos)
    return "SPARSEKILN_REMOTE has a blank, a ? or a #, which a folder's URL has not; in a password they are "
           "%20, "
           "%3F and %23";
  const std::size_t slash = std::min(url.find('/', scheme), url.size());
  const auto ats = std::count(url.begin(), url.end(), '@');
  if (ats > 1 || (ats == 1 && url.find('@') > slash))
    return "SPARSEKILN_REMOTE has an @ that does not end a name and password; elsewhere it is %40, and / in "
           "a "
           "password %2F";
  return "";
}

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

  /// The payload that the server has and that is believed. Counts everything else, and the time it took.
  std::optional<std::vector<std::byte>> ask(const Identity& identity, milliseconds patience_left) {
    const auto begin = Clock::now();
    const HttpAnswer answer = client->get(url_of(remote_name(identity)), patience_left, kMostBytes);
    if (answer.status == 404 || answer.status == 403) {  // the second where listing a bucket is not allowed
      ++misses;
      lost.missed(Clock::now() - begin);
      return std::nullopt;
    }
    if (answer.status != 200) {
      fail(answer);
      lost.failed(Clock::now() - begin);
      return std::nullopt;
    }
    std::string why;
    auto payload = unseal(identity, answer.body, settings.keys, settings.believes_unsigned, why);
    if (!payload) {
      ++refused;
      remember(why);
      lost.failed(Clock::now() - begin);
    }
    return payload;
  }

  /// Sends what is queued, until the end. A server that fails once is sent nothing more, but for an entry
  /// that is too large for it.
  void run() noexcept try {
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
      constexpr long kTooLarge = 413;
      const bool done = answer.status >= 200 && answer.status < 300;
      if (done)
        ++sent;
      else if (!cancelled)
        fail(answer);
      lock.lock();
      busy = false;
      sends = sends && (done || answer.status == kTooLarge);
      changed.notify_all();
    }
  } catch (const std::exception&) {  // no memory, so nothing more is sent
    const std::lock_guard lock(mutex);
    sends = busy = false;
    queue.clear();
    queued = 0;
    changed.notify_all();
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
    // Until a time of day: glibc waits by the steady clock from 2.30 on, and wheels are for 2.28.
    state_->changed.wait_until(lock, std::chrono::system_clock::now() + kLastWait,
                               [&] { return state_->queue.empty() && !state_->busy; });
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
  if (const std::string why = refusal_of(settings.url); !why.empty()) return refuse(why);
  settings.believes_unsigned = variable("SPARSEKILN_REMOTE_UNSIGNED") == "1";
  try {
    const std::string file = variable("SPARSEKILN_REMOTE_KEY");
    if (file.find("-key-1 ") != std::string::npos)
      return refuse("SPARSEKILN_REMOTE_KEY holds a key; it names a file that does");
    if (!file.empty())
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
  auto client = HttpClient::make(variable("SPARSEKILN_REMOTE_CA"), why);
  if (client == nullptr) return refuse(why);
  return std::make_shared<Remote>(std::move(settings), std::move(client));
}

std::optional<std::vector<std::byte>> Remote::get(
    const Identity& identity, const std::function<bool(std::span<const std::byte>)>& accept) {
  const milliseconds patience = state_->lost.left();
  if (patience <= milliseconds{0} || state_->process != ::getpid() || state_->cancelled) return std::nullopt;
  const auto begin = Clock::now();
  std::optional<std::vector<std::byte>> payload;
  try {
    payload = state_->ask(identity, patience);
  } catch (const std::exception&) {  // no memory for what the server has
    state_->remember("there is no memory for what the server has");
    ++state_->failures;
    state_->lost.failed(Clock::now() - begin);
    return std::nullopt;
  }
  const auto took = Clock::now() - begin;
  if (!payload) return std::nullopt;
  if (!accept(*payload)) {  // it was made by another NVRTC, say
    ++state_->misses;
    state_->lost.missed(took);
    return std::nullopt;
  }
  ++state_->hits;
  return payload;
}

void Remote::put(const Identity& identity, std::span<const std::byte> payload) {
  if (!sends() || state_->process != ::getpid() || state_->lost.pauses()) return;
  if (payload.size() > kMostBytes) return;
  try {
    State::Sending sending{remote_name(identity), seal(identity, payload, state_->settings.keys)};
    const std::lock_guard lock(state_->mutex);
    if (!state_->sends || state_->ends || state_->queued + sending.bytes.size() > kMostBytes) return;
    if (!state_->thread.joinable()) state_->thread = std::thread([this] { state_->run(); });
    state_->queued += sending.bytes.size();
    state_->queue.push_back(std::move(sending));
  } catch (const std::exception&) {  // no memory, or no thread: it is not sent
    return;
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

bool Remote::sends() const { return state_->settings.keys.signs() || state_->settings.believes_unsigned; }

bool Remote::believes_unsigned() const { return state_->settings.believes_unsigned; }

std::string without_secrets(const std::string& url) {
  const std::size_t scheme = url.find("://");
  const std::size_t at = url.rfind('@');
  if (scheme == std::string::npos) return "";
  return at == std::string::npos ? url : url.substr(0, scheme + 3) + url.substr(at + 1);
}

}  // namespace sparsekiln::cache
