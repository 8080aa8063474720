#include "compiler/cuda/table_text.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace sparsekiln::cuda {
namespace {

constexpr std::size_t kLineWidth = 110;

/// Elements of an initialiser, in lines.
class ElementLines {
 public:
  explicit ElementLines(std::string& text) : text_(text) {}
  void add(std::string_view element) {
    if (column_ + element.size() + 2 > kLineWidth) {
      text_ += "\n ";
      column_ = 1;
    }
    text_ += ' ';
    text_ += element;
    text_ += ',';
    column_ += element.size() + 2;
  }
  void add(std::int32_t number) {
    const fmt::format_int digits(number);
    add(std::string_view(digits.data(), digits.size()));
  }
  void add(const Tables::Step& step) {
    add(fmt::format("{{{:#x}, {}u}}", step.bits, static_cast<std::uint32_t>(step.block)));
  }
  void add(const Tables::WorkerBegin& begin) { add(fmt::format("{{{}, {}}}", begin.chunk, begin.item)); }
  void add(const Tables::SplitPart& part) {
    add(fmt::format("{{{}, {}, {}, {}}}", part.slot, part.first, part.parts, part.counter));
  }

 private:
  std::string& text_;
  std::size_t column_ = kLineWidth;
};

std::string_view memory_of(TableForm form) {
  return form == TableForm::constant ? "__constant__" : "__device__";
}

/// Appends an array; C++ has no empty ones, so an empty one gets an element that is never read.
template <class Element>
void write_array(std::string& text, std::string_view type, std::string_view name, std::size_t index,
                 TableForm form, const std::vector<Element>& elements) {
  text += fmt::format("static {} const {} {}_{}[] = {{", memory_of(form), type, name, index);
  ElementLines lines(text);
  for (const Element& element : elements) lines.add(element);
  if (elements.empty()) lines.add(Element{});
  text += "\n};\n";
}

}  // namespace

void write_numbers(std::string& text, std::string_view name, std::size_t index, TableForm form,
                   const std::vector<std::int32_t>& numbers) {
  write_array(text, "int", name, index, form, numbers);
}

void TableWriter::write_arrays(std::size_t index, const Tables& tables, TableForm form) {
  text_.reserve(text_.size() + 18 * tables.steps.size() + 4096);
  text_ += "\n// Each worker's first chunk and first item.\n";
  write_array(text_, "sparsekiln::WorkerBegin", "worker_begin", index, form, tables.worker_begin);
  text_ += "// Steps: bits as sparsekiln::Step reads them, and their block of W.\n";
  write_array(text_, "uint2", "steps", index, form, tables.steps);
  if (!tables.more_blocks.empty()) write_array(text_, "int", "more_blocks", index, form, tables.more_blocks);
  text_ += "// The chunk after the last one of each item.\n";
  write_array(text_, "int", "item_ends", index, form, tables.item_ends);
  text_ += "// Block rows of the items; -1: none.\n";
  write_array(text_, "int", "rows", index, form, tables.rows);
  if (!tables.parts.empty()) {
    text_ +=
        "// The items' places among the split parts (-1: a whole one), and slot of the part's sums, slot of "
        "the first part, parts, counter.\n";
    write_array(text_, "int", "splits", index, form, tables.splits);
    write_array(text_, "sparsekiln::SplitPart", "parts", index, form, tables.parts);
  }
  if (form == TableForm::constant) constant_bytes_ += tables.bytes();
}

void TableWriter::write(std::size_t index, const Tables& tables, TableForm form,
                        const TableFigures& figures) {
  if (form == TableForm::attached) {
    text_ += fmt::format("\nusing Table{} = sparsekiln::AttachedTables;\n", index);
    return;
  }
  const auto same = std::find_if(written_.begin(), written_.end(), [&](const Written& earlier) {
    return earlier.form == form && earlier.tables == tables;
  });
  const std::size_t source = same == written_.end() ? index : same->index;
  if (same == written_.end()) {
    write_arrays(index, tables, form);
    written_.push_back({tables, form, index});
  }
  const auto reader = [&](std::string_view type, std::string_view function, std::string_view array) {
    text_ += fmt::format("  __device__ static {} {}(int index) {{ return {{{}_{}[index]}}; }}\n", type,
                         function, array, source);
  };
  text_ += fmt::format("struct Table{} {{\n", index);
  reader("sparsekiln::WorkerBegin", "worker", "worker_begin");
  reader("uint2", "step", "steps");
  if (!tables.more_blocks.empty()) reader("int", "more_block", "more_blocks");
  reader("int", "item_end", "item_ends");
  reader("int", "row", "rows");
  if (!tables.parts.empty()) {
    reader("int", "split", "splits");
    reader("sparsekiln::SplitPart", "part", "parts");
    text_ += fmt::format(
        "  // The workspace: counters for each batch tile, in counter_bytes, then the sums of each tile's "
        "parts.\n"
        "  __device__ static int counters() {{ return {}; }}\n"
        "  __device__ static long long counter_bytes() {{ return {}; }}\n"
        "  __device__ static long long tile_bytes() {{ return {}; }}\n",
        figures.counters, figures.counter_bytes, figures.tile_bytes);
  }
  if (form == TableForm::unrolled) {
    text_ += "  __device__ static constexpr int chunks(int worker) {\n    switch (worker) {\n";
    for (std::size_t worker = 0; worker + 1 < tables.worker_begin.size(); ++worker)
      text_ += fmt::format("      case {}: return {};\n", worker,
                           tables.worker_begin[worker + 1].chunk - tables.worker_begin[worker].chunk);
    text_ += "      default: return 0;\n    }\n  }\n";
  }
  text_ += "};\n";
}

}  // namespace sparsekiln::cuda
