#include "compiler/cuda/resources.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <elf.h>
#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln::cuda {
namespace {

// A cubin is an ELF file. Per kernel K it has .text.K, .nv.shared.K, .nv.constant0.K; the module's
// __constant__ data is .nv.constant3. Section .nv.info holds records of attributes (the numbers as `cuobjdump
// -elf` shows them):
//   byte format, byte attribute, then by format
//     4 (EIFMT_SVAL): 16-bit length, and that many bytes of payload
//     others: 16 bits of value
// The three used here have as payload the index of a symbol, and a figure, 32 bits each.
constexpr std::uint8_t kSizedValue = 4;
constexpr std::uint8_t kFrameSize = 0x11;
constexpr std::uint8_t kRegisterCount = 0x2f;

// From sm_90 on the system's 1 KB of a CTA's shared memory (CUDA C++ Programming Guide, "Shared Memory") is
// counted in .nv.shared.K, and this section says so.
constexpr std::string_view kReservedMark = ".nv.shared.reserved.0";
constexpr std::int64_t kReservedShared = 1024;

[[noreturn]] void broken(const std::string& what) {
  throw Error(ErrorKind::internal, fmt::format("the cubin cannot be read: {}", what));
}

/// A trivially copyable T at `offset`, checked.
template <class T>
T read(std::span<const std::byte> bytes, std::uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) broken("it ends early");
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

class Cubin {
 public:
  explicit Cubin(std::span<const std::byte> bytes) : bytes_(bytes) {
    const auto header = read<Elf64_Ehdr>(bytes_, 0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_machine != EM_CUDA || header.e_shentsize != sizeof(Elf64_Shdr))
      broken("it is no 64-bit CUDA ELF");
    for (std::uint64_t i = 0; i < header.e_shnum; ++i)
      sections_.push_back(read<Elf64_Shdr>(bytes_, checked_sum(header.e_shoff, i * sizeof(Elf64_Shdr))));
    if (header.e_shstrndx >= sections_.size()) broken("it has no section names");
    names_ = contents(sections_[header.e_shstrndx]);
  }

  [[nodiscard]] const Elf64_Shdr* find(std::string_view name) const {
    const auto it = std::find_if(sections_.begin(), sections_.end(), [&](const Elf64_Shdr& section) {
      return string_at(names_, section.sh_name) == name;
    });
    return it == sections_.end() ? nullptr : &*it;
  }
  [[nodiscard]] std::int64_t size_of(std::string_view name) const {
    const Elf64_Shdr* const section = find(name);
    return section == nullptr ? 0 : static_cast<std::int64_t>(section->sh_size);
  }
  [[nodiscard]] std::span<const std::byte> contents(const Elf64_Shdr& section) const {
    if (section.sh_type == SHT_NOBITS) return {};
    if (section.sh_offset > bytes_.size() || bytes_.size() - section.sh_offset < section.sh_size)
      broken("a section reaches beyond its end");
    return bytes_.subspan(section.sh_offset, section.sh_size);
  }

  /// The figure of one attribute for one kernel.
  [[nodiscard]] std::optional<std::uint32_t> attribute(std::uint8_t wanted, std::string_view kernel) const {
    const Elf64_Shdr* const section = find(".nv.info");
    if (section == nullptr) return std::nullopt;
    const std::span<const std::byte> info = contents(*section);
    for (std::uint64_t at = 0; at < info.size();) {
      const auto format = read<std::uint8_t>(info, at);
      const auto attribute = read<std::uint8_t>(info, at + 1);
      const auto length = read<std::uint16_t>(info, at + 2);
      at += 4;
      if (format != kSizedValue) continue;
      if (attribute == wanted && length >= 8 && symbol_name(read<std::uint32_t>(info, at)) == kernel)
        return read<std::uint32_t>(info, at + 4);
      at += length;
    }
    return std::nullopt;
  }

 private:
  static std::uint64_t checked_sum(std::uint64_t a, std::uint64_t b) {
    std::uint64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum)) broken("an offset overflows");
    return sum;
  }
  static std::string_view string_at(std::span<const std::byte> strings, std::uint64_t offset) {
    if (offset >= strings.size()) broken("a name is beyond its table");
    const char* const start = reinterpret_cast<const char*>(strings.data()) + offset;
    const auto rest = static_cast<std::size_t>(strings.size() - offset);
    return {start, strnlen(start, rest)};
  }
  [[nodiscard]] std::string_view symbol_name(std::uint64_t index) const {
    const Elf64_Shdr* const table = find(".symtab");
    if (table == nullptr || table->sh_link >= sections_.size()) broken("it has no symbols");
    const auto symbol = read<Elf64_Sym>(contents(*table), index * sizeof(Elf64_Sym));
    return string_at(contents(sections_[table->sh_link]), symbol.st_name);
  }

  std::span<const std::byte> bytes_;
  std::vector<Elf64_Shdr> sections_;
  std::span<const std::byte> names_;
};

/// The number in front of `unit` in a line of ptxas's report, as in "8 bytes stack frame, 4 bytes spill
/// stores".
std::int32_t figure_before(std::string_view line, std::string_view unit) {
  const std::size_t end = line.find(unit);
  if (end == std::string_view::npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  std::int32_t figure = 0;
  std::from_chars(line.data() + begin, line.data() + end, figure);
  return figure;
}

/// The line that follows "Function properties for KERNEL".
std::string_view properties(std::string_view log, std::string_view kernel) {
  const std::string title = fmt::format("Function properties for {}\n", kernel);
  const std::size_t at = log.find(title);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = log.substr(at + title.size());
  return rest.substr(0, rest.find('\n'));
}

}  // namespace

Resources read_resources(std::span<const std::byte> cubin, std::string_view kernel, std::string_view log) {
  const Cubin elf(cubin);
  const Elf64_Shdr* const text = elf.find(fmt::format(".text.{}", kernel));
  const auto registers = elf.attribute(kRegisterCount, kernel);
  if (text == nullptr || !registers)
    throw Error(ErrorKind::internal, fmt::format("the cubin has no kernel '{}'", kernel));
  Resources resources;
  resources.registers = static_cast<std::int32_t>(*registers);
  std::int64_t shared = elf.size_of(fmt::format(".nv.shared.{}", kernel));
  if (shared > 0 && elf.find(kReservedMark) != nullptr) shared -= kReservedShared;
  resources.shared_bytes = static_cast<std::int32_t>(std::max<std::int64_t>(shared, 0));
  resources.stack_bytes = static_cast<std::int32_t>(elf.attribute(kFrameSize, kernel).value_or(0));
  resources.constant_bytes = static_cast<std::int32_t>(elf.size_of(".nv.constant3"));
  resources.code_bytes = static_cast<std::int64_t>(text->sh_size);
  const std::string_view line = properties(log, kernel);
  resources.spill_store_bytes = figure_before(line, " bytes spill stores");
  resources.spill_load_bytes = figure_before(line, " bytes spill loads");
  return resources;
}

Resources combined(const Resources& a, const Resources& b) {
  return {.registers = std::max(a.registers, b.registers),
          .shared_bytes = std::max(a.shared_bytes, b.shared_bytes),
          .stack_bytes = std::max(a.stack_bytes, b.stack_bytes),
          .spill_load_bytes = std::max(a.spill_load_bytes, b.spill_load_bytes),
          .spill_store_bytes = std::max(a.spill_store_bytes, b.spill_store_bytes),
          .constant_bytes = std::max(a.constant_bytes, b.constant_bytes),
          .code_bytes = a.code_bytes + b.code_bytes};
}

}  // namespace sparsekiln::cuda
