#include "tests/mutations/mutate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <optional>
#include <utility>

namespace sparsekiln::test {
namespace {

/// The instruction of a line without its blanks and its guard; empty where there is none.
std::string_view instruction_of(std::string_view line) {
  const auto skip_blanks = [&] {
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.front())) != 0)
      line.remove_prefix(1);
  };
  skip_blanks();
  if (line.starts_with("@")) {
    line.remove_prefix(std::min(line.size(), line.find_first_of(" \t")));
    skip_blanks();
  }
  return !line.empty() && std::islower(static_cast<unsigned char>(line.front())) != 0 ? line
                                                                                      : std::string_view();
}

bool is(std::string_view line, std::string_view opcode) { return instruction_of(line).starts_with(opcode); }
bool contains(std::string_view line, std::string_view part) {
  return line.find(part) != std::string_view::npos;
}

using Broken = std::optional<std::string>;

Broken replaced(std::string_view line, std::string_view from, std::string_view to) {
  const std::size_t place = line.find(from);
  if (place == std::string_view::npos) return {};
  return std::string(line.substr(0, place)) + std::string(to) + std::string(line.substr(place + from.size()));
}

/// Adds `bytes` to the offset of the `index`-th address in brackets.
Broken moved(std::string_view line, int index, int bytes) {
  std::size_t close = std::string_view::npos;
  std::size_t from = 0;
  for (int i = 0; i <= index; ++i) {
    close = line.find(']', from);
    if (close == std::string_view::npos) return {};
    from = close + 1;
  }
  const std::size_t open = line.rfind('[', close);
  std::string address(line.substr(open + 1, close - open - 1));
  int offset = bytes;
  if (const std::size_t plus = address.find('+'); plus != std::string::npos) {
    offset += std::stoi(address.substr(plus + 1));
    address.resize(plus);
  }
  return std::string(line.substr(0, open + 1)) + address + "+" + std::to_string(offset) +
         std::string(line.substr(close));
}

/// Places of the `index`-th list in braces.
std::optional<std::pair<std::size_t, std::size_t>> braces(std::string_view line, int index) {
  std::size_t from = 0;
  for (int i = 0;; ++i) {
    const std::size_t open = line.find('{', from);
    const std::size_t close = line.find('}', open == std::string_view::npos ? open : open + 1);
    if (close == std::string_view::npos) return {};
    if (i == index) return std::pair{open + 1, close};
    from = close + 1;
  }
}

std::vector<std::string> elements(std::string_view list) {
  std::vector<std::string> result(1);
  for (const char letter : list) {
    if (letter == ',')
      result.emplace_back();
    else if (std::isspace(static_cast<unsigned char>(letter)) == 0)
      result.back() += letter;
  }
  return result;
}

/// Lets the first register of the `index`-th list change places with the second, or with the last.
Broken swapped(std::string_view line, int index, bool with_last = false) {
  const auto place = braces(line, index);
  if (!place) return {};
  std::vector<std::string> registers = elements(line.substr(place->first, place->second - place->first));
  if (registers.size() < 2) return {};
  std::string& other = with_last ? registers.back() : registers[1];
  if (registers[0] == other) return {};
  std::swap(registers[0], other);
  std::string list;
  for (const std::string& name : registers) list += (list.empty() ? "" : ", ") + name;
  return std::string(line.substr(0, place->first)) + list + std::string(line.substr(place->second));
}

Broken wait_off_by_one(std::string_view line, std::string_view wait) {
  if (!is(line, wait)) return {};
  const std::size_t count = line.find_first_of("0123456789", line.find(wait) + wait.size());
  return replaced(line, line.substr(count),
                  std::to_string(std::stoi(std::string(line.substr(count))) + 1) + ";");
}

/// The line with another last operand; with none, where that is empty.
std::string last_operand_replaced(std::string_view line, std::string_view with) {
  const std::size_t comma = line.rfind(',');
  const std::string before(line.substr(0, comma));
  return with.empty() ? before + ";" : before + ", " + std::string(with) + ";";
}

Broken multicast_dropped(std::string_view line) {
  constexpr std::string_view kMulticast = ".multicast::cluster";
  if (!contains(line, kMulticast)) return {};
  return last_operand_replaced(*replaced(line, kMulticast, ""), "");
}

/// `mbarrier.try_wait… p, [address], parity;` that does not wait.
Broken phase_not_awaited(std::string_view line) {
  if (!is(line, "mbarrier.try_wait")) return {};
  const std::string_view instruction = instruction_of(line);
  const std::size_t begin = instruction.find_first_of(" \t");
  return "setp.eq.u32 " + elements(instruction.substr(begin, instruction.find(';') - begin)).front() +
         ", 0, 0;";
}

Broken swizzle_changed(std::string_view line) {
  if (!is(line, "xor.b32")) return {};
  return replaced(line, "xor.b32", "or.b32");
}

/// The sum stays as it was.
Broken multiply_dropped(std::string_view line) {
  if (is(line, "fma.rn.f32")) {
    const std::string_view instruction = instruction_of(line);
    const std::size_t begin = instruction.find_first_of(" \t");
    const std::vector<std::string> names = elements(instruction.substr(begin, instruction.find(';') - begin));
    return names.size() == 4 ? Broken("mov.f32 " + names[0] + ", " + names[3] + ";") : Broken();
  }
  if (!is(line, "mma.sync") || !contains(line, ".f32")) return {};
  const auto to = braces(line, 0);
  const auto from = braces(line, 3);
  if (!to || !from) return {};
  const std::vector<std::string> sums = elements(line.substr(to->first, to->second - to->first));
  const std::vector<std::string> old = elements(line.substr(from->first, from->second - from->first));
  std::string moves;
  for (std::size_t i = 0; i < sums.size(); ++i) moves += "mov.b32 " + sums[i] + ", " + old[i] + "; ";
  return moves;
}

/// The lane takes what it gives.
Broken exchange_dropped(std::string_view line) {
  if (!is(line, "shfl.sync.bfly.b32")) return {};
  const std::string_view instruction = instruction_of(line);
  const std::size_t begin = instruction.find_first_of(" \t");
  const std::vector<std::string> names = elements(instruction.substr(begin, instruction.find(';') - begin));
  return "mov.b32 " + names[0] + ", " + names[1] + ";";
}

/// Whether a line is a branch over stores alone, and what leads up to them: then it guards them. `rest` is
/// the text after it.
bool guards_store(std::string_view line, std::string_view rest) {
  if (line.find('@') == std::string_view::npos || !is(line, "bra")) return false;
  const std::size_t begin = line.find('$');
  if (begin == std::string_view::npos) return false;
  const std::string target = std::string(line.substr(begin, line.find(';') - begin)) + ":";
  bool stores = false;
  while (!rest.empty()) {
    const std::string_view next = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), next.size() + 1));
    if (next.starts_with("$")) return stores && next.starts_with(target);
    if (is(next, "bra")) return false;
    stores = stores || is(next, "st.global.");
  }
  return false;
}

/// The line as `fault` leaves it, for each way to do so; an empty string removes it.
std::vector<std::string> broken(std::string_view line, std::string_view rest, Fault fault) {
  std::vector<std::string> ways;
  const auto add = [&](const Broken& way) {
    if (way) ways.push_back(*way);
  };
  const auto remove_if = [&](bool fits) {
    if (fits) ways.emplace_back();
  };
  switch (fault) {
    case Fault::barrier_removed:
      remove_if(is(line, "bar.sync") || is(line, "barrier.sync") || is(line, "bar.warp.sync"));
      break;
    case Fault::wait_count_off_by_one:
      add(wait_off_by_one(line, "cp.async.wait_group"));
      break;
    case Fault::wait_removed:
      remove_if(is(line, "cp.async.wait_"));
      break;
    case Fault::commit_removed:
      remove_if(is(line, "cp.async.commit_group"));
      break;
    case Fault::order_removed:
      if (is(line, "atom.acq_rel.")) add(replaced(line, ".acq_rel.", ".relaxed."));
      break;
    case Fault::store_of_counter_removed:
      remove_if(is(line, "st.global.u32"));
      break;
    case Fault::copy_address_off:
      if (is(line, "cp.async.c")) add(moved(line, 0, 128));
      break;
    case Fault::load_address_off:
      if (is(line, "ldmatrix.") || is(line, "ld.shared.v4") || is(line, "ld.shared.v2.b32"))
        add(moved(line, 0, 128));
      break;
    case Fault::global_address_off:
      if (is(line, "cp.async.c")) add(moved(line, 1, 16));
      if (is(line, "ld.global.nc.v4") || is(line, "ld.global.nc.L1::no_allocate.") ||
          is(line, "ld.global.v4.u32"))
        add(moved(line, 0, 16));
      break;
    case Fault::store_address_off:
      if (is(line, "st.global.") && !is(line, "st.global.u32")) add(moved(line, 0, 16));
      break;
    case Fault::swizzle_changed:
      add(swizzle_changed(line));
      break;
    case Fault::edge_guard_dropped:
      if ((is(line, "cp.async.cg") || is(line, "cp.async.ca")) && !contains(line, ", 16;"))
        add(std::string(line.substr(0, line.rfind(','))) + ";");
      break;
    case Fault::block_scale_ignored:
      // Those that lanes exchange are loaded as words.
      if (is(line, "ld.global.f32") || is(line, "ld.global.u32")) {
        const std::string_view instruction = instruction_of(line);
        const std::size_t begin = instruction.find('%');
        add("mov.b32 " + std::string(instruction.substr(begin, instruction.find(',') - begin)) +
            ", 0f3F800000;");
      }
      break;
    case Fault::scale_dropped:
      if (is(line, "mul.f32")) {
        const std::size_t last = line.rfind(',');
        add(*replaced(std::string(line.substr(0, last)) + ";", "mul.f32", "mov.f32"));
      }
      break;
    case Fault::zero_fill_dropped:
      if (is(line, "selp.b32") && contains(line, " 16, 0, ")) {
        const std::string_view instruction = instruction_of(line);
        const std::size_t begin = instruction.find('%');
        add("mov.b32 " + std::string(instruction.substr(begin, instruction.find(',') - begin)) + ", 16;");
      }
      break;
    case Fault::store_guard_dropped:
      remove_if(guards_store(line, rest));
      if (line.find('@') != std::string_view::npos && is(line, "st.global."))
        add(std::string(instruction_of(line)));
      break;
    case Fault::fragment_swapped:
      if (is(line, "ldmatrix.")) add(swapped(line, 0));
      if (is(line, "mma.sync")) {
        add(swapped(line, 1));
        add(swapped(line, 2));
      }
      break;
    case Fault::accumulator_swapped:
      if (is(line, "mma.sync") || is(line, "wgmma.mma_async")) add(swapped(line, 0));
      break;
    case Fault::rounding_dropped:
      if (is(line, "cvt.rna.tf32.f32")) add(replaced(line, "cvt.rna.tf32.f32", "mov.b32"));
      break;
    case Fault::multiply_dropped:
      add(multiply_dropped(line));
      break;
    case Fault::transposition_dropped:
      if (is(line, "ldmatrix.")) add(replaced(line, ".trans", ""));
      if (is(line, "movmatrix.")) add(replaced(line, "movmatrix.sync.aligned.m8n8.trans.b16", "mov.b32"));
      if (is(line, "wgmma.mma_async")) {
        add(replaced(line, ", 1, 1;", ", 0, 1;"));
        add(replaced(line, ", 1, 1;", ", 1, 0;"));
        add(replaced(line, ", 1, 0;", ", 0, 0;"));
      }
      break;
    case Fault::exchange_dropped:
      add(exchange_dropped(line));
      break;
    case Fault::grid_wait_removed:
      remove_if(is(line, "griddepcontrol.wait"));
      break;
    case Fault::grid_trigger_early:
      if (is(line, "griddepcontrol.wait")) add("griddepcontrol.launch_dependents;");
      break;
    case Fault::product_fence_removed:
      remove_if(is(line, "wgmma.fence"));
      break;
    case Fault::product_wait_off_by_one:
      add(wait_off_by_one(line, "wgmma.wait_group.sync.aligned"));
      break;
    case Fault::product_commit_removed:
      remove_if(is(line, "wgmma.commit_group"));
      break;
    case Fault::expected_bytes_off:
      if (is(line, "mbarrier.arrive.expect_tx")) add(last_operand_replaced(line, "4096"));
      break;
    case Fault::phase_changed:
      if (is(line, "mbarrier.try_wait")) add(last_operand_replaced(line, "0"));
      break;
    case Fault::arrival_removed:
      remove_if(is(line, "mbarrier.arrive") && !contains(line, "expect_tx"));
      break;
    case Fault::arrivals_off:
      if (is(line, "mbarrier.init")) add(last_operand_replaced(line, "2"));
      break;
    case Fault::box_off:
      if (is(line, "cp.async.bulk.tensor.")) add(swapped(line, 0, true));
      break;
    case Fault::multicast_dropped:
      add(multicast_dropped(line));
      break;
    case Fault::registers_kept:
      remove_if(is(line, "setmaxnreg.dec"));
      break;
    case Fault::phase_not_awaited:
      add(phase_not_awaited(line));
      break;
    case Fault::product_wait_removed:
      remove_if(is(line, "wgmma.wait_group"));
      break;
    case Fault::product_dropped:
      remove_if(is(line, "wgmma.mma_async"));
      break;
    case Fault::cluster_left_early:
      remove_if(is(line, "barrier.cluster.wait"));
      break;
  }
  return ways;
}

/// The mutations of lines that begin at `begin` or later, and before `last`.
std::vector<Mutation> all_places(std::string_view ptx, std::size_t begin, std::size_t last, Fault fault) {
  std::vector<Mutation> found;
  auto number =
      static_cast<int>(std::count(ptx.begin(), ptx.begin() + static_cast<std::ptrdiff_t>(begin), '\n'));
  while (begin < last) {
    const std::size_t end = std::min(ptx.find('\n', begin), ptx.size());
    const std::string_view line = ptx.substr(begin, end - begin);
    ++number;
    if (!instruction_of(line).empty())
      for (std::string& after : broken(line, ptx.substr(std::min(end + 1, ptx.size())), fault)) {
        std::string text(ptx.substr(0, begin));
        text += after;
        text += ptx.substr(end);
        found.push_back({fault, number, std::string(line), std::move(after), std::move(text)});
      }
    begin = end + 1;
  }
  return found;
}

/// An instruction that stands twice in succession is left out twice, since either one covers the other.
void join_repeated(std::vector<Mutation>& found) {
  for (std::size_t i = 0; i + 1 < found.size(); ++i) {
    if (found[i].before != found[i + 1].before) continue;
    found[i].ptx = *replaced(found[i].ptx, found[i].before, found[i].after);
    found.erase(found.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

}  // namespace

std::string_view name(Fault fault) {
  constexpr std::array<std::string_view, 38> kNames = {"barrier removed",
                                                       "wait count off by one",
                                                       "wait removed",
                                                       "commit removed",
                                                       "order removed",
                                                       "store of counter removed",
                                                       "copy address off",
                                                       "load address off",
                                                       "global address off",
                                                       "store address off",
                                                       "swizzle changed",
                                                       "edge guard dropped",
                                                       "block scale ignored",
                                                       "scale dropped",
                                                       "zero fill dropped",
                                                       "store guard dropped",
                                                       "fragment swapped",
                                                       "accumulator swapped",
                                                       "rounding dropped",
                                                       "multiplication dropped",
                                                       "transposition dropped",
                                                       "exchange dropped",
                                                       "wait for launches removed",
                                                       "early trigger",
                                                       "fence of products removed",
                                                       "wait for products off by one",
                                                       "commit of products removed",
                                                       "expected bytes off",
                                                       "phase changed",
                                                       "arrival removed",
                                                       "arrivals off",
                                                       "box off",
                                                       "multicast dropped",
                                                       "registers kept",
                                                       "phase not awaited",
                                                       "wait for products removed",
                                                       "product dropped",
                                                       "cluster left early"};
  return kNames[static_cast<std::size_t>(fault)];
}

std::vector<Mutation> mutations(std::string_view ptx, Fault fault) {
  std::vector<Mutation> found = all_places(ptx, 0, ptx.size(), fault);
  if (fault == Fault::phase_not_awaited) join_repeated(found);
  if (fault == Fault::barrier_removed && !found.empty()) found.pop_back();
  if (fault == Fault::phase_not_awaited && found.size() > 2) found.erase(found.begin() + 1);
  if (fault == Fault::edge_guard_dropped)
    found.erase(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(found.size() / 2));
  if (fault == Fault::store_guard_dropped && !found.empty()) found.erase(found.begin(), found.end() - 1);
  return found;
}

std::vector<Mutation> mutations_of_kernel(std::string_view ptx, std::string_view kernel, Fault fault) {
  const std::size_t begin = ptx.find(".entry " + std::string(kernel) + "(");
  if (begin == std::string_view::npos) return {};
  return all_places(ptx, ptx.find('\n', begin) + 1, std::min(ptx.find(".entry ", begin + 1), ptx.size()),
                    fault);
}

}  // namespace sparsekiln::test
