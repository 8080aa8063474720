#include "tests/kernels/table.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <thread>

#include "tests/kernels/claims.h"
#include "tests/kernels/suite.h"

namespace sparsekiln::test {
namespace {

TableShare current_share;

void compile_ahead(const std::vector<Part>& parts) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < parts.size(); i = next++) try {
        (void)build(parts[i].layout, parts[i].options);
      } catch (const std::exception&) {  // it fails again where it is reported
      }
  };
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
}

std::string failure_of(const Part& part) {
  try {
    return part.run();
  } catch (const std::exception& error) {
    return error.what();
  }
}

void compile_share(const std::vector<Part>& parts, const std::string& title) {
  for (std::size_t i = current_share.pass * current_share.sample; i < parts.size();
       i += current_share.passes * current_share.sample) {
    const std::string name = fmt::format("compile {} #{}", title, i);
    if (!current_share.claims->claim(name, parts[i].what)) continue;
    try {
      (void)build(parts[i].layout, parts[i].options);
    } catch (const std::exception&) {  // it fails again where it is reported
    }
    current_share.claims->end(name, "");
  }
}

std::size_t run_share(const std::vector<Part>& parts, const std::string& title) {
  std::size_t ran = 0;
  for (std::size_t i = current_share.pass * current_share.sample; i < parts.size();
       i += current_share.passes * current_share.sample) {
    const std::string name = fmt::format("{} #{}", title, i);
    if (!current_share.claims->claim(name, parts[i].what)) continue;
    const std::string failure = failure_of(parts[i]);
    current_share.claims->end(name, failure);
    ++ran;
    if (failure.empty()) continue;
    CHECK_MESSAGE(false, parts[i].what, ": ", failure);
    if (context_is_lost()) std::_Exit(kContextLost);
  }
  return ran;
}

}  // namespace

void set_table_share(const TableShare& share) { current_share = share; }

std::size_t run_table(const std::vector<Part>& parts) {
  REQUIRE(!parts.empty());
  if (current_share.claims != nullptr) {
    const std::string title = doctest::getContextOptions()->currentTest->m_name;
    current_share.claims->plan(title, (parts.size() + current_share.sample - 1) / current_share.sample);
    if (!current_share.compiles) return run_share(parts, title);
    compile_share(parts, title);
    return 0;
  }
  compile_ahead(parts);
  for (const Part& part : parts) {
    const std::string failure = failure_of(part);
    CHECK_MESSAGE(failure.empty(), part.what, ": ", failure);
  }
  return parts.size();
}

bool context_is_lost() {
  try {
    Suite::current().device()->synchronize();
    return false;
  } catch (const std::exception&) {
    return true;
  }
}

}  // namespace sparsekiln::test
