#include "tests/runtime/cuda/stub_cubin.h"

#include <cstring>

#include <elf.h>

namespace stub {
namespace {

template <class Value>
Value read(const std::byte* at) {
  Value value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

std::map<std::string, std::size_t> variables_of_cubin(const std::byte* cubin) {
  std::map<std::string, std::size_t> variables;
  const auto head = read<Elf64_Ehdr>(cubin);
  const auto section = [&](std::size_t number) {
    return read<Elf64_Shdr>(cubin + head.e_shoff + number * head.e_shentsize);
  };
  for (std::size_t i = 0; i < head.e_shnum; ++i) {
    const Elf64_Shdr table = section(i);
    if (table.sh_type != SHT_SYMTAB) continue;
    const std::byte* const names = cubin + section(table.sh_link).sh_offset;
    for (std::size_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read<Elf64_Sym>(cubin + table.sh_offset + at);
      if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT)
        variables.emplace(reinterpret_cast<const char*>(names + symbol.st_name), symbol.st_size);
    }
  }
  return variables;
}

}  // namespace stub
