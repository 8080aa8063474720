#include "tests/conformance/assemble.h"

#include <cstring>

#include <fmt/format.h>

namespace sparsekiln::conformance {
namespace {

std::string declaration(const Column& column) {
  if (column.kind == Kind::predicate) return fmt::format("  .reg .pred {};\n", column.name);
  return fmt::format("  .reg .b{} {};\n", 8 * column.bytes, column.name);
}

std::string load(const Column& column) {
  if (column.kind == Kind::predicate)
    return fmt::format("  {{ .reg .b32 word; ld.global.u32 word, [in_row+{}]; setp.ne.u32 {}, word, 0; }}\n",
                       column.offset, column.name);
  return fmt::format("  ld.global.b{} {}, [in_row+{}];\n", 8 * column.bytes, column.name, column.offset);
}

std::string store(const Column& column) {
  if (column.kind == Kind::predicate)
    return fmt::format("  {{ .reg .b32 word; selp.u32 word, 1, 0, {}; st.global.u32 [out_row+{}], word; }}\n",
                       column.name, column.offset);
  return fmt::format("  st.global.b{} [out_row+{}], {};\n", 8 * column.bytes, column.offset, column.name);
}

/// The number of the thread in the grid, x fastest: `tid`. Only what the case's sizes need.
std::string numbering(const Case& test) {
  std::string text = "  mov.u32 tid, 0;\n";
  const auto add_digit = [&](const char* number, int size, int axis) {
    if (size == 1) return;
    text += fmt::format("  {{ .reg .b32 digit; mov.u32 digit, %{}.{}; mad.lo.u32 tid, tid, {}, digit; }}\n",
                        number, "xyz"[axis], size);
  };
  for (const int axis : {2, 1, 0}) add_digit("ctaid", test.grid[static_cast<std::size_t>(axis)], axis);
  for (const int axis : {2, 1, 0}) add_digit("tid", test.block[static_cast<std::size_t>(axis)], axis);
  return text;
}

constexpr const char* kProlog = R"(  mov.u32 lane, %laneid;
  ld.param.u64 in_row, [given];
  cvta.to.global.u64 in_row, in_row;
  mad.wide.u32 in_row, tid, {}, in_row;
  ld.param.u64 out_row, [answers];
  cvta.to.global.u64 out_row, out_row;
  mad.wide.u32 out_row, tid, {}, out_row;
  ld.param.u64 scratch, [scratch_memory];
  cvta.to.global.u64 scratch, scratch;
)";

}  // namespace

std::string architecture_of(const Case& test) {
  return fmt::format("sm_{}{}", test.target, test.for_target_alone ? "a" : "");
}

std::string module_of(const Case& test) {
  std::string text = fmt::format("// {}\n.version {}\n.target {}\n.address_size 64\n", test.title(),
                                 test.for_target_alone ? "8.6" : "8.0", architecture_of(test));
  text += test.module_text;
  text += fmt::format(
      ".visible .entry {}(.param .u64 given, .param .u64 answers, .param .u64 scratch_memory)\n{{\n", kEntry);
  text += "  .reg .b32 tid, lane;\n  .reg .b64 in_row, out_row, scratch;\n";
  for (const Column& column : test.in) text += declaration(column);
  for (const Column& column : test.out) text += declaration(column);
  text += numbering(test) + fmt::format(kProlog, row_bytes(test.in), row_bytes(test.out));
  for (const Column& column : test.in) text += load(column);
  text += "  {\n" + test.body + "  }\n";
  for (const Column& column : test.out) text += store(column);
  return text + "  ret;\n}\n";
}

std::vector<std::uint64_t> unpack(const std::vector<Column>& columns, const std::uint8_t* row) {
  std::vector<std::uint64_t> values;
  for (const Column& column : columns) {
    std::uint64_t value = 0;
    std::memcpy(&value, row + column.offset, static_cast<std::size_t>(column.bytes));
    values.push_back(value);
  }
  return values;
}

void pack(const std::vector<Column>& columns, const std::vector<std::uint64_t>& values, std::uint8_t* row) {
  for (std::size_t i = 0; i < columns.size(); ++i)
    std::memcpy(row + columns[i].offset, &values[i], static_cast<std::size_t>(columns[i].bytes));
}

}  // namespace sparsekiln::conformance
