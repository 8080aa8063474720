#include "emulator/ptx/scopes.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "emulator/ptx/token.h"

namespace sparsekiln::ptx {
namespace {

constexpr std::size_t kDeepest = 64;  // braces within braces

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The number that a register of a range ends in; nothing for "07".
std::optional<std::uint64_t> number(std::string_view digits) {
  if (digits.size() > 1 && digits.front() == '0') return std::nullopt;
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

}  // namespace

void Scopes::open(int line) {
  if (scopes_.size() == kDeepest)
    throw Error(line, "more than " + std::to_string(kDeepest) + " braces within braces");
  scopes_.emplace_back().first_use = uses_.size();
}

void Scopes::close() {
  const Scope& scope = scopes_.back();
  refuse_overlaps(scope);
  resolve_labels(scope);
  for (auto hidden = scope.symbols.rbegin(); hidden != scope.symbols.rend(); ++hidden)
    if (hidden->outer)
      symbols_[hidden->name] = *hidden->outer;
    else
      symbols_.erase(hidden->name);
  for (const std::string_view prefix : scope.ranges) ranges_[prefix].pop_back();
  scopes_.pop_back();
  deepest_range_ = 0;
  for (std::size_t i = scopes_.size(); i > 0 && deepest_range_ == 0; --i)
    if (!scopes_[i - 1].ranges.empty()) deepest_range_ = static_cast<std::uint32_t>(i);
}

void Scopes::declare(std::string_view name, Type type, int line) {
  const auto depth = static_cast<std::uint32_t>(scopes_.size());
  const auto found = symbols_.find(name);
  if (found != symbols_.end() && found->second.depth == depth)
    throw Error(line, quoted(name) + " is declared twice");
  scopes_.back().symbols.push_back(
      {name, found != symbols_.end() ? std::optional(found->second) : std::nullopt});
  scopes_.back().declared.push_back({name, line});
  symbols_[name] = {kUnused, type, depth};
}

void Scopes::declare_range(std::string_view prefix, std::uint64_t count, Type type, int line) {
  const auto depth = static_cast<std::uint32_t>(scopes_.size());
  std::vector<Range>& ranges = ranges_[prefix];
  if (!ranges.empty() && ranges.back().depth == depth)
    throw Error(line, quoted(prefix) + " is declared twice");
  ranges.push_back({count, type, depth});
  scopes_.back().ranges.push_back(prefix);
  deepest_range_ = depth;
}

/// `%r12` may be the thirteenth of `%r<…>` or the third of `%r1<…>`: the innermost counts.
std::optional<Scopes::Range> Scopes::range_of(std::string_view name) const {
  constexpr std::size_t kMostDigits = 20;
  std::optional<Range> best;
  for (std::size_t digits = 1; digits < name.size() && digits <= kMostDigits; ++digits) {
    const std::size_t split = name.size() - digits;
    if (!is_digit(name[split])) break;
    const auto ranges = ranges_.find(name.substr(0, split));
    const auto index = number(name.substr(split));
    if (ranges == ranges_.end() || !index) continue;
    const auto holds = [&](const Range& range) { return *index < range.count; };
    const auto range = std::find_if(ranges->second.rbegin(), ranges->second.rend(), holds);
    if (range != ranges->second.rend() && (!best || range->depth > best->depth)) best = *range;
  }
  return best;
}

std::optional<std::uint32_t> Scopes::find(std::string_view name) {
  const auto symbol = symbols_.find(name);
  const bool known = symbol != symbols_.end();
  if (known && symbol->second.depth >= deepest_range_) {
    if (symbol->second.reg == kUnused) symbol->second.reg = add(name, symbol->second.type);
    return symbol->second.reg;
  }
  const auto range = range_of(name);
  if (range && (!known || range->depth > symbol->second.depth)) {
    const Symbol made{add(name, range->type), range->type, range->depth};
    scopes_[range->depth - 1].symbols.push_back({name, known ? std::optional(symbol->second) : std::nullopt});
    symbols_[name] = made;
    return made.reg;
  }
  if (!known) return std::nullopt;
  if (symbol->second.reg == kUnused) symbol->second.reg = add(name, symbol->second.type);
  return symbol->second.reg;
}

std::uint32_t Scopes::add(std::string_view name, Type type) {
  function_.registers.push_back({std::string(name), type});
  return static_cast<std::uint32_t>(function_.registers.size() - 1);
}

/// A name that is declared by itself must not be part of a range of the same scope.
void Scopes::refuse_overlaps(const Scope& scope) const {
  if (scope.ranges.empty()) return;
  for (const Declared& declared : scope.declared)
    if (const auto range = range_of(declared.name); range && range->depth == scopes_.size())
      throw Error(declared.line, quoted(declared.name) + " is declared twice");
}

void Scopes::define_label(std::string_view name, int line) {
  const auto next = static_cast<std::uint32_t>(function_.statements.size());
  if (!scopes_.back().labels.emplace(name, next).second)
    throw Error(line, "the label " + quoted(name) + " is there twice");
}

void Scopes::use_label(std::string_view name, std::size_t operand, int line) {
  uses_.push_back({name, static_cast<std::uint32_t>(function_.statements.size()),
                   static_cast<std::uint32_t>(operand), line});
}

void Scopes::resolve_labels(const Scope& scope) {
  const auto first = uses_.begin() + static_cast<std::ptrdiff_t>(scope.first_use);
  if (!scope.labels.empty()) {
    const auto resolved = std::remove_if(first, uses_.end(), [&](const LabelUse& use) {
      const auto label = scope.labels.find(use.name);
      if (label == scope.labels.end()) return false;
      function_.statements[use.statement].operands[use.operand].index = label->second;
      return true;
    });
    uses_.erase(resolved, uses_.end());
  }
  if (scopes_.size() == 1 && !uses_.empty())
    throw Error(uses_.front().line, "no label " + quoted(uses_.front().name));
}

}  // namespace sparsekiln::ptx
