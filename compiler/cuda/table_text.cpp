#include "compiler/cuda/table_text.h"

#include <algorithm>
#include <bit>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <sparsekiln/error.h>

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

/// The name of templates/schedule.cuh for where steps are.
std::string_view step_place(TableForm form) {
  switch (form) {
    case TableForm::unrolled:
      return "kStepsInCode";
    case TableForm::constant:
      return "kStepsInConstants";
    default:
      return "kStepsInMemory";
  }
}

void define(std::string& text, std::string_view memory, std::string_view type, std::string_view array,
            const auto& elements) {
  text += fmt::format("static {} const {} {}[] = {{", memory, type, array);
  ElementLines lines(text);
  for (const auto& element : elements) lines.add(element);
  text += "\n};\n";
}

}  // namespace

TablePlace TablePlaces::next(TableForm form, std::int64_t bytes) {
  if (form == TableForm::constant) {
    constant_bytes_ += bytes;
    return TablePlace::constant;
  }
  if (form == TableForm::global) {
    if (text_bytes_ + bytes > kMostTextBytes) return TablePlace::data;
    text_bytes_ += bytes;
  }
  return TablePlace::global;
}

template <class Element>
void ArrayWriter::write(std::string_view type, std::string_view name, const std::vector<Element>& elements) {
  if (elements.empty())  // C++ has no empty arrays: it gets an element that is never read
    return write(type, name, std::vector<Element>(1));
  const std::string array = fmt::format("{}_{}", name, index_);
  if (place_ != TablePlace::data)
    return define(source_.text, place_ == TablePlace::constant ? "__constant__" : "__device__", type, array,
                  elements);
  static_assert(std::endian::native == std::endian::little);
  source_.text +=
      fmt::format("extern \"C\" {{ __device__ __align__(16) {} {}[{}]; }}\n", type, array, elements.size());
  const auto bytes = std::as_bytes(std::span(elements));
  source_.data.push_back({array, {bytes.begin(), bytes.end()}});
}

void ArrayWriter::write(std::string_view name, const std::vector<std::int32_t>& numbers) {
  write("int", name, numbers);
}
void ArrayWriter::write(std::string_view name, const std::vector<Tables::Step>& steps) {
  write("uint2", name, steps);
}
void ArrayWriter::write(std::string_view name, const std::vector<Tables::WorkerBegin>& begins) {
  write("sparsekiln::WorkerBegin", name, begins);
}
void ArrayWriter::write(std::string_view name, const std::vector<Tables::SplitPart>& parts) {
  write("sparsekiln::SplitPart", name, parts);
}

std::string element_text(std::string_view name, std::size_t index, TablePlace place, std::string_view at) {
  const std::string element = fmt::format("{}_{}[{}]", name, index, at);
  return place == TablePlace::data ? fmt::format("sparsekiln::ptx::read_only({})", element) : element;
}

std::string write_block_scales(Source& source, TablePlaces& places, std::size_t index,
                               const BlockScales& scales) {
  const auto functions = [](std::string_view scale, std::string_view first_block) {
    return fmt::format(
        "  __device__ static int block_scale(int block) {{ return {}; }}\n"
        "  __device__ static int first_block(int scale) {{ return {}; }}\n",
        scale, first_block);
  };
  if (!scales.shared()) return functions("block", "scale");
  if (scales.taps() != 0)
    return functions(fmt::format("block / {}", scales.taps()), fmt::format("scale * {}", scales.taps()));
  std::vector<std::int32_t> first_block;
  std::vector<std::int32_t> scale_of;
  for (std::int32_t scale = 0; scale <= scales.count(); ++scale) {
    first_block.push_back(scales.first(scale));
    if (scale < scales.count()) scale_of.resize(static_cast<std::size_t>(scales.first(scale + 1)), scale);
  }
  const auto bytes = static_cast<std::int64_t>(4 * (first_block.size() + scale_of.size()));
  const TablePlace place = places.next(TableForm::global, bytes);
  ArrayWriter arrays(source, index, place);
  source.text += "\n// The number of the scale of each block of W, and the first block of each scale.\n";
  arrays.write("scale_of", scale_of);
  arrays.write("first_block", first_block);
  return functions(element_text("scale_of", index, place, "block"),
                   element_text("first_block", index, place, "scale"));
}

void TableWriter::write_arrays(const Written& table) {
  const Tables& tables = table.tables;
  ArrayWriter arrays(source_, table.index, table.place);
  if (table.place != TablePlace::data) text().reserve(text().size() + 18 * tables.steps.size() + 4096);
  text() += "\n// Each worker's first chunk and first item.\n";
  arrays.write("worker_begin", tables.worker_begin);
  text() += "// Steps: bits as sparsekiln::Step reads them, and their block of W.\n";
  arrays.write("steps", tables.steps);
  if (!tables.more_blocks.empty()) arrays.write("more_blocks", tables.more_blocks);
  text() += "// The chunk after the last one of each item, or how many each of its tiles has.\n";
  arrays.write("item_ends", tables.item_ends);
  text() +=
      "// Block rows of the items, where rows of y are scattered times classes, plus the class; -1: none.\n";
  arrays.write("rows", tables.rows);
  if (!tables.parts.empty()) {
    text() +=
        "// The items' places among the split parts (-1: a whole one), and slot of the part's sums, slot of "
        "the first part, parts, counter.\n";
    arrays.write("splits", tables.splits);
    arrays.write("parts", tables.parts);
  }
}

const TableWriter::Written& TableWriter::written(std::size_t index, const Tables& tables, TableForm form) {
  const auto same = std::find_if(written_.begin(), written_.end(), [&](const Written& earlier) {
    return earlier.form == form && earlier.tables == tables;
  });
  if (same != written_.end()) return *same;
  written_.push_back({tables, form, places_.next(form, tables.bytes()), index});
  write_arrays(written_.back());
  return written_.back();
}

void TableWriter::write_attached(std::size_t index, const BlockScales* scales) {
  if (scales == nullptr || !scales->shared()) {
    text() += fmt::format("\nusing Table{} = sparsekiln::AttachedTables;\n", index);
    return;
  }
  if (scales->taps() == 0)
    throw Error(ErrorKind::internal, "a mask for each block of a layout that is attached");
  text() += fmt::format("\nstruct Table{} : sparsekiln::AttachedTables {{\n", index) +
            write_block_scales(source_, places_, index, *scales) + "};\n";
}

void TableWriter::write(std::size_t index, const Tables& tables, TableForm form, const TableFigures& figures,
                        const BlockScales* scales) {
  if (form == TableForm::attached) return write_attached(index, scales);
  const Written& arrays = written(index, tables, form);
  const auto reader = [&](std::string_view type, std::string_view function, std::string_view array) {
    text() += fmt::format("  __device__ static {} {}(int index) {{ return {{{}}}; }}\n", type, function,
                          element_text(array, arrays.index, arrays.place, "index"));
  };
  if (scales != nullptr && block_scales_.empty())
    block_scales_ = write_block_scales(source_, places_, index, *scales);
  text() += fmt::format("struct Table{} {{\n  enum : int {{ steps_in = sparsekiln::{} }};\n", index,
                        step_place(form)) +
            block_scales_;
  reader("sparsekiln::WorkerBegin", "worker", "worker_begin");
  reader("uint2", "step", "steps");
  if (!tables.more_blocks.empty()) reader("int", "more_block", "more_blocks");
  reader("int", "item_end", "item_ends");
  reader("int", "row", "rows");
  if (!tables.parts.empty()) {
    reader("int", "split", "splits");
    reader("sparsekiln::SplitPart", "part", "parts");
  }
  if (!tables.parts.empty() || figures.columns)
    text() += fmt::format(
        "  // The workspace: counters for each batch tile, in counter_bytes, then what each tile has there.\n"
        "  __device__ static int counters() {{ return {}; }}\n"
        "  __device__ static long long counter_bytes() {{ return {}; }}\n"
        "  __device__ static long long tile_bytes() {{ return {}; }}\n",
        figures.counters, figures.counter_bytes, figures.tile_bytes);
  if (figures.columns)
    text() += fmt::format("  __device__ static int columns() {{ return {}; }}\n", *figures.columns);
  if (figures.features)
    text() += fmt::format("  __device__ static int features() {{ return {}; }}\n", *figures.features);
  if (form == TableForm::unrolled) {
    text() += "  __device__ static constexpr int chunks(int worker) {\n    switch (worker) {\n";
    for (std::size_t worker = 0; worker + 1 < tables.worker_begin.size(); ++worker)
      text() += fmt::format("      case {}: return {};\n", worker,
                            tables.worker_begin[worker + 1].chunk - tables.worker_begin[worker].chunk);
    text() += "      default: return 0;\n    }\n  }\n";
  }
  text() += "};\n";
}

}  // namespace sparsekiln::cuda
