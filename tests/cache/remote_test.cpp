#include "cache/remote.h"

#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/store.h"
#include "environment.h"
#include "scratch_folder.h"

using namespace sparsekiln::cache;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace {

/// A server in this process, which may be slow, broken or malicious.
class Server final : public HttpClient {
 public:
  long get_status = 200;  ///< 0: no answer, after all of the patience
  long put_status = 201;
  milliseconds delay{0};
  std::map<std::string, std::vector<std::byte>> objects;
  int gets = 0;
  int puts = 0;
  std::mutex mutex;

  HttpAnswer get(const std::string& url, milliseconds patience, std::size_t) override {
    const std::lock_guard lock(mutex);
    ++gets;
    if (delay > patience || get_status == 0) {
      std::this_thread::sleep_for(patience);
      return {.status = 0, .problem = "Timeout was reached", .body = {}};
    }
    std::this_thread::sleep_for(delay);
    if (get_status != 200) return {.status = get_status, .problem = "", .body = {}};
    const auto found = objects.find(url);
    if (found == objects.end()) return {.status = 404, .problem = "", .body = {}};
    return {.status = 200, .problem = "", .body = found->second};
  }
  HttpAnswer put(const std::string& url, std::span<const std::byte> body, milliseconds,
                 const std::atomic<bool>& cancelled) override {
    for (auto left = delay; left > milliseconds{0} && !cancelled; left -= milliseconds{10})
      std::this_thread::sleep_for(milliseconds{10});
    const std::lock_guard lock(mutex);
    ++puts;
    if (cancelled) return {.status = 0, .problem = "cancelled", .body = {}};
    if (put_status < 300) objects[url].assign(body.begin(), body.end());
    return {.status = put_status, .problem = "", .body = {}};
  }
};

constexpr const char* kUrl = "http://server/folder";

struct Fixture {
  const ScratchFolder scratch;
  const std::shared_ptr<Server> server = std::make_shared<Server>();

  Fixture() {
    Keys::make(scratch.path() / "key");
    Keys::make(scratch.path() / "other");
  }
  [[nodiscard]] std::shared_ptr<Remote> remote(const char* key = "key",
                                               bool believes_unsigned = false) const {
    Remote::Settings settings;
    settings.url = kUrl;
    if (key != nullptr) settings.keys = Keys::read(scratch.path() / key);
    settings.believes_unsigned = believes_unsigned;
    return std::make_shared<Remote>(std::move(settings), server);
  }
  /// What lies on the server for the sample identity.
  [[nodiscard]] std::vector<std::byte>& stored() const {
    return server->objects[std::string(kUrl) + "/" + remote_name(sample_identity())];
  }
};

bool anything(std::span<const std::byte>) { return true; }

milliseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
}

}  // namespace

TEST_CASE("what one process sends, another one gets, and a public key suffices for that") {
  const Fixture fixture;
  const auto sender = fixture.remote();
  CHECK_FALSE(sender->get(sample_identity(), anything).has_value());
  sender->put(sample_identity(), payload_of(1000));
  sender->wait();
  CHECK(sender->counters().sent == 1);
  CHECK(sender->counters().misses == 1);
  const auto reader = fixture.remote("key.pub");
  CHECK(reader->get(sample_identity(), anything) == payload_of(1000));
  CHECK_FALSE(reader->get(sample_identity("65"), anything).has_value());
  CHECK_FALSE(reader->get(sample_identity(), [](std::span<const std::byte>) { return false; }).has_value());
  reader->put(sample_identity("65"), payload_of(10));
  reader->wait();
  CHECK(fixture.server->puts == 1);  // it has nothing to sign with
}

TEST_CASE("an entry is believed only with the right signature, whole, and under its own identity") {
  const Fixture fixture;
  const Identity identity = sample_identity();
  const auto payload = payload_of(300);
  const auto good = seal(identity, payload, Keys::read(fixture.scratch.path() / "key"));
  const auto refuses = [&](const std::vector<std::byte>& bytes, const char* why) {
    const auto reader = fixture.remote("key.pub");
    fixture.stored() = bytes;
    CHECK_FALSE(reader->get(identity, anything).has_value());
    CHECK(reader->problem().find(why) != std::string::npos);
    CHECK(reader->counters().refused == 1);
  };
  for (std::size_t at = 0; at < good.size(); ++at) {
    auto changed = good;
    changed[at] ^= std::byte{0x10};
    std::string why;
    const Keys keys = Keys::read(fixture.scratch.path() / "key.pub");
    REQUIRE_FALSE(unseal(identity, changed, keys, false, why).has_value());
    REQUIRE_FALSE(why.empty());
    changed.assign(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(at));
    REQUIRE_FALSE(unseal(identity, changed, keys, false, why).has_value());
  }
  refuses(bytes_of("<html>login</html>"), "is no entry");
  refuses({}, "is no entry");
  refuses(seal(identity, payload, Keys::read(fixture.scratch.path() / "other")), "by no key");
  refuses(seal(identity, payload, Keys()), "not signed");
  refuses(seal(sample_identity("65"), payload, Keys::read(fixture.scratch.path() / "key")), "something else");
  fixture.stored() = good;
  CHECK(fixture.remote("key.pub")->get(identity, anything) == payload);
}

TEST_CASE("unsigned entries are believed where that was asked for, wrongly signed ones never") {
  const Fixture fixture;
  const auto trusting = fixture.remote(nullptr, true);
  trusting->put(sample_identity(), payload_of(10));
  trusting->wait();
  CHECK(trusting->get(sample_identity(), anything) == payload_of(10));
  fixture.stored() = seal(sample_identity(), payload_of(10), Keys::read(fixture.scratch.path() / "other"));
  CHECK_FALSE(trusting->get(sample_identity(), anything).has_value());
}

TEST_CASE("a server that does not answer, or fails, costs a process less than a second in all") {
  for (const long status : {0L, 500L, 503L, 302L, 401L}) {
    CAPTURE(status);
    const Fixture fixture;
    fixture.server->get_status = status;
    fixture.server->put_status = status == 0 ? 500 : status;
    const auto begin = Clock::now();
    {
      const auto remote = fixture.remote();
      for (int i = 0; i < 200; ++i) {
        CHECK_FALSE(remote->get(sample_identity(std::to_string(i)), anything).has_value());
        remote->put(sample_identity(std::to_string(i)), payload_of(10));
      }
      CHECK(remote->counters().failures >= 1);
    }
    CHECK(since(begin) < milliseconds{1000});
    CHECK(fixture.server->gets <= 3);  // it is left alone
    CHECK(fixture.server->puts <= 1);
  }
}

TEST_CASE("a server that is slow is not worth waiting for, also when a process ends") {
  const Fixture fixture;
  fixture.server->delay = milliseconds{5000};
  const auto begin = Clock::now();
  {
    const auto remote = fixture.remote();
    for (int i = 0; i < 50; ++i) {
      static_cast<void>(remote->get(sample_identity(std::to_string(i)), anything));
      remote->put(sample_identity(std::to_string(i)), payload_of(10));
    }
  }
  CHECK(since(begin) < milliseconds{1000});
  CHECK(fixture.server->puts <= 1);  // nothing is sent while the server is left alone
}

TEST_CASE("an entry that is not believed is a failure, after which the server is left alone") {
  const Fixture fixture;
  const auto reader = fixture.remote("key.pub");
  fixture.stored() = bytes_of("garbage");
  for (int i = 0; i < 20; ++i) CHECK_FALSE(reader->get(sample_identity(), anything).has_value());
  CHECK(fixture.server->gets == 1);
}

TEST_CASE("hits cost nothing, however long they take") {
  const Fixture fixture;
  fixture.remote()->put(sample_identity(), payload_of(10));
  const auto reader = fixture.remote("key.pub");
  fixture.server->delay = milliseconds{100};
  for (int i = 0; i < 10; ++i) CHECK(reader->get(sample_identity(), anything).has_value());
}

TEST_CASE("what was made elsewhere is not signed here") {
  const Fixture fixture;
  const auto sender = fixture.remote();
  Store store(fixture.scratch.path() / "folder", {}, {}, sender);
  const auto make = [] { return Store::Made{payload_of(200, 1), payload_of(100, 2)}; };
  CHECK(store.get_or_make(sample_identity(), anything, make).payload == payload_of(200, 1));
  sender->wait();
  CHECK(fixture.remote("key.pub")->get(sample_identity(), anything) == payload_of(100, 2));
  // Where the folder has code for another driver, the server is not asked, and both stay.
  const int asked = fixture.server->gets;
  const auto refuse = [](std::span<const std::byte>) { return false; };
  CHECK(store.get_or_make(sample_identity(), refuse, make).made);
  CHECK(fixture.server->gets == asked);
}

TEST_CASE("a forked child does without the server") {
  const Fixture fixture;
  const auto remote = fixture.remote();
  remote->put(sample_identity(), payload_of(10));
  remote->wait();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(remote->get(sample_identity(), anything).has_value() ? 1 : 0);
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(remote->get(sample_identity(), anything).has_value());
}

TEST_CASE("answers that each take a while are given up as well") {
  const Fixture fixture;
  fixture.server->delay = milliseconds{150};
  const auto remote = fixture.remote();
  const auto begin = Clock::now();
  for (int i = 0; i < 50; ++i) static_cast<void>(remote->get(sample_identity(std::to_string(i)), anything));
  CHECK(since(begin) < milliseconds{1500});
  CHECK(fixture.server->gets < 10);
}

TEST_CASE("a store asks its remote level before it makes anything, and keeps what it finds") {
  const Fixture fixture;
  const auto make = [](unsigned seed) { return [=] { return payload_of(100, seed); }; };
  {
    Store first(fixture.scratch.path() / "first", {}, {}, fixture.remote());
    CHECK(first.get_or_make(sample_identity(), anything, make(1)).made);
  }
  const auto reader = fixture.remote("key.pub");
  Store second(fixture.scratch.path() / "second", {}, {}, reader);
  const auto got = second.get_or_make(sample_identity(), anything, make(2));
  CHECK_FALSE(got.made);
  CHECK(got.payload == payload_of(100, 1));
  CHECK(second.get(sample_identity()) == payload_of(100, 1));
  const int asked = fixture.server->gets;
  CHECK_FALSE(second.get_or_make(sample_identity(), anything, make(2)).made);
  CHECK(fixture.server->gets == asked);
  // What the server has for it cannot be used here: it is made, and what was there stays.
  const auto refuse = [](std::span<const std::byte> payload) { return payload.size() != 100; };
  Store third(fixture.scratch.path() / "third", {}, {}, reader);
  CHECK(third.get_or_make(sample_identity(), refuse, make(3)).made);
}

TEST_CASE("the environment names a server and keys; what is missing is said, without secrets") {
  const Fixture fixture;
  const std::string key = (fixture.scratch.path() / "key").string();
  const Variable no_unsigned("SPARSEKILN_REMOTE_UNSIGNED", nullptr);
  std::string complaint;
  {
    const Variable none("SPARSEKILN_REMOTE", nullptr);
    CHECK(Remote::from_environment(complaint) == nullptr);
    CHECK(complaint.empty());
  }
  const Variable url("SPARSEKILN_REMOTE", "https://me:hunter2@host:8443/a");
  {
    const Variable no_key("SPARSEKILN_REMOTE_KEY", nullptr);
    CHECK(Remote::from_environment(complaint) == nullptr);
    CHECK(complaint.find("SPARSEKILN_REMOTE_KEY") != std::string::npos);
    const Variable unsigned_ones("SPARSEKILN_REMOTE_UNSIGNED", "1");
    CHECK(Remote::from_environment(complaint) != nullptr);
  }
  const Variable named("SPARSEKILN_REMOTE_KEY", key.c_str());
  const auto remote = Remote::from_environment(complaint);
  REQUIRE(remote != nullptr);
  CHECK(remote->place() == "https://host:8443/a");
  CHECK(complaint.find("hunter2") == std::string::npos);
  for (const char* bad :
       {"ftp://me:hunter2@host/", "https://host/a?token=hunter2", "https://me:hun#ter2@host/",
        "https://me:hun/ter2@host/k", "https://me:hunter2@x@host/k", "https://me:hunter2 @host"}) {
    CAPTURE(bad);
    const Variable other("SPARSEKILN_REMOTE", bad);
    CHECK(Remote::from_environment(complaint) == nullptr);
    CHECK_FALSE(complaint.empty());
    CHECK(complaint.find("hun") == std::string::npos);
    CHECK(complaint.find("ter2") == std::string::npos);
  }
  const std::string text = "sparsekiln-secret-key-1 " + std::string(64, 'a');
  const Variable not_a_file("SPARSEKILN_REMOTE_KEY", text.c_str());
  CHECK(Remote::from_environment(complaint) == nullptr);
  CHECK(complaint.find("names a file") != std::string::npos);
  CHECK(complaint.find("aaaa") == std::string::npos);
}

TEST_CASE("a URL loses its name and password") {
  CHECK(without_secrets("http://host/a/b") == "http://host/a/b");
  CHECK(without_secrets("http://u:p@host/a") == "http://host/a");
  CHECK(without_secrets("https://u:p@ss@host:1/a") == "https://host:1/a");
  CHECK(without_secrets("https://u@host") == "https://host");
  CHECK(without_secrets("nonsense").empty());
}

TEST_CASE("names on a server are 64 hexadecimal digits, of the whole identity") {
  const std::string name = remote_name(sample_identity());
  CHECK(name.size() == 64);
  CHECK(name.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(name != remote_name(sample_identity("65")));
}
