#include "tools/progress.h"

#include <string>

#include <fmt/format.h>
#include <sparsekiln/printable.h>
#include <unistd.h>

#include "system/standard_streams.h"

namespace sparsekiln::tools {
namespace {

constexpr std::size_t kBar = 30;
constexpr std::size_t kWidth = 110;
constexpr auto kBetweenDrawings = std::chrono::milliseconds(100);
constexpr auto kBetweenLines = std::chrono::seconds(10);

}  // namespace

Progress::Progress(std::size_t total) : total_(total), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (terminal_) write_message("\r\x1b[K");
}

void Progress::done(std::string_view what, bool found, bool failed) {
  const std::lock_guard lock(mutex_);
  ++done_;
  found_ += found ? 1 : 0;
  failed_ += failed ? 1 : 0;
  const auto now = Clock::now();
  if (done_ != total_ && now - drawn_ < (terminal_ ? Clock::duration(kBetweenDrawings) : kBetweenLines))
    return;
  drawn_ = now;
  draw(what);
}

void Progress::draw(std::string_view what) {
  const double seconds = std::chrono::duration<double>(drawn_ - start_).count();
  std::string line =
      fmt::format("{}/{} kernels, {} compiled, {} found", done_, total_, done_ - found_ - failed_, found_);
  if (failed_ != 0) line += fmt::format(", {} FAILED", failed_);
  line += fmt::format(", {:.0f} s", seconds);
  if (!terminal_) {
    write_message(fmt::format("sparsekiln: {}\n", line));
    return;
  }
  if (done_ != total_)
    line += fmt::format(", {:.0f} s to go",
                        seconds / static_cast<double>(done_) * static_cast<double>(total_ - done_));
  const std::size_t full = total_ == 0 ? kBar : kBar * done_ / total_;
  line = fmt::format("[{}{}] {}: {}", std::string(full, '='), std::string(kBar - full, ' '), line,
                     printable(what));
  write_message(fmt::format("\r\x1b[K{}", line.substr(0, kWidth)));
}

}  // namespace sparsekiln::tools
