#include "system/deep_stack.h"

#include <array>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <pthread.h>
#include <ucontext.h>

using namespace sparsekiln;

namespace {

/// Touches so many bytes of stack.
[[gnu::noinline]] int use_stack(std::size_t bytes) {
  std::array<volatile char, 4096> page{};
  page[0] = 1;
  return bytes <= page.size() ? page[0] : page[0] + use_stack(bytes - page.size());
}

/// Calls `work` on a thread whose stack has so many bytes.
void on_thread(std::size_t stack, const std::function<void()>& work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  REQUIRE(pthread_attr_setstacksize(&attributes, stack) == 0);
  pthread_t thread{};
  const auto call = [](void* given) -> void* {
    (*static_cast<const std::function<void()>*>(given))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, call, const_cast<std::function<void()>*>(&work)) == 0);
  pthread_attr_destroy(&attributes);
  pthread_join(thread, nullptr);
}

constexpr std::size_t kSmall = 64 << 10;

}  // namespace

TEST_CASE("work has a deep stack, whatever the stack of the thread that calls") {
  for (const std::size_t stack : {kSmall, std::size_t{1} << 20, std::size_t{16} << 20}) {
    int pages = 0;
    on_thread(stack, [&] { on_deep_stack([&] { pages = use_stack(kEnoughStack - (64 << 10)); }); });
    CHECK(pages > 900);
  }
}

TEST_CASE("a thread that has enough stack does the work itself, and only such a thread") {
  const auto is_the_same = [](std::size_t stack) {
    bool same = false;
    on_thread(stack, [&] {
      const std::thread::id caller = std::this_thread::get_id();
      on_deep_stack([&] { same = std::this_thread::get_id() == caller; });
    });
    return same;
  };
  CHECK(is_the_same(2 * kEnoughStack));
  CHECK_FALSE(is_the_same(kSmall));
}

TEST_CASE("a fiber, whose stack is not its thread's, gets a deep stack") {
  static ucontext_t caller, fiber;
  static int pages;
  pages = 0;
  std::vector<char> stack(kSmall);
  REQUIRE(getcontext(&fiber) == 0);
  fiber.uc_stack.ss_sp = stack.data();
  fiber.uc_stack.ss_size = stack.size();
  fiber.uc_link = &caller;
  makecontext(&fiber, [] { on_deep_stack([] { pages = use_stack(1 << 20); }); }, 0);
  REQUIRE(swapcontext(&caller, &fiber) == 0);
  CHECK(pages > 200);
}

TEST_CASE("what the work throws comes out, from either thread") {
  for (const std::size_t stack : {kSmall, 2 * kEnoughStack}) {
    bool caught = false;
    on_thread(stack, [&] {
      try {
        on_deep_stack([] { throw std::out_of_range("the work's own"); });
      } catch (const std::out_of_range& error) {
        caught = std::string_view(error.what()) == "the work's own";
      }
    });
    CHECK(caught);
  }
}
