#include "compiler/cuda/tables.h"

#include <algorithm>
#include <span>
#include <string_view>

#include <fmt/format.h>

namespace sparsekiln::cuda {
namespace {

constexpr std::int64_t kItemBytes = 16;   // Item of templates/schedule.cuh
constexpr std::int64_t kSplitBytes = 16;  // SplitPart
constexpr std::size_t kLineWidth = 110;

bool short_columns(const Problem& problem) { return problem.layout.cols() <= 65536; }

std::string columns_name(TableForm form) {
  return form == TableForm::constant ? "columns" : "columns_global";
}

/// Whether two schedules have the same tables besides that of columns.
bool same_items(const Schedule& a, const Schedule& b) {
  return a.items == b.items && a.worker_begin == b.worker_begin;
}

std::int64_t split_parts(const Schedule& schedule) {
  return std::count_if(schedule.items.begin(), schedule.items.end(),
                       [](const Item& item) { return item.parts > 1; });
}

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
  void add(std::int64_t number) {
    const fmt::format_int digits(number);
    add(std::string_view(digits.data(), digits.size()));
  }
  /// C++ has no empty arrays.
  void end(bool any, std::string_view otherwise) {
    if (!any) add(otherwise);
    text_ += "\n};\n";
  }

 private:
  std::string& text_;
  std::size_t column_ = kLineWidth;
};

}  // namespace

std::int64_t column_table_bytes(const Problem& problem) {
  return std::max<std::int64_t>(problem.layout.blocks(), 1) * (short_columns(problem) ? 2 : 4);
}

std::int64_t item_table_bytes(const Schedule& schedule) {
  const auto items = std::max<std::int64_t>(static_cast<std::int64_t>(schedule.items.size()), 1);
  return items * kItemBytes + split_parts(schedule) * kSplitBytes +
         static_cast<std::int64_t>(schedule.worker_begin.size()) * 4;
}

std::int64_t table_bytes(const Problem& problem, const Schedule& schedule) {
  return column_table_bytes(problem) + item_table_bytes(schedule);
}

std::int64_t constant_table_bound(const Problem& problem, std::int64_t workers) {
  // Each of the workers - 1 boundaries cuts one row at most: one item more, two parts more.
  const std::int64_t items = problem.layout.rows() + workers;
  return column_table_bytes(problem) + items * kItemBytes + 2 * workers * kSplitBytes + (workers + 1) * 4 +
         32;
}

void TableWriter::declare(std::string_view type, const std::string& name, TableForm form) {
  text_ += fmt::format("{} const {} {}[] = {{", form == TableForm::constant ? "__constant__" : "__device__",
                       type, name);
}

void TableWriter::write_columns(TableForm form) {
  if (std::find(columns_.begin(), columns_.end(), form) != columns_.end()) return;
  columns_.push_back(form);
  const std::span<const std::int32_t> col = problem_.layout.col();
  text_ += "\n// Block columns of the steps, row by row. Step s multiplies block s of W.\n";
  text_.reserve(text_.size() + 6 * col.size() + 4096);
  declare(short_columns(problem_) ? "unsigned short" : "int", columns_name(form), form);
  ElementLines lines(text_);
  for (const std::int32_t column : col) lines.add(column);
  lines.end(!col.empty(), "0");
  if (form == TableForm::constant) constant_bytes_ += column_table_bytes(problem_);
}

void TableWriter::write_items(std::size_t index, const Schedule& schedule, TableForm form) {
  text_ += "\n// Work items: output block row, first step, steps, split part (-1: a whole row).\n";
  declare("sparsekiln::Item", fmt::format("items_{}", index), form);
  ElementLines items(text_);
  std::int64_t part = 0;
  for (const Item& item : schedule.items)
    items.add(fmt::format("{{{}, {}, {}, {}}}", item.output, item.first_step, item.steps,
                          item.parts > 1 ? part++ : -1));
  items.end(!schedule.items.empty(), "{0, 0, 0, -1}");

  text_ += "// Each worker's first item.\n";
  declare("int", fmt::format("worker_begin_{}", index), form);
  ElementLines workers(text_);
  for (const std::int32_t begin : schedule.worker_begin) workers.add(begin);
  workers.end(true, {});

  if (part > 0) {
    text_ += "// Parts of split rows: slot of its sums, slot of the row's first part, parts, counter.\n";
    declare("sparsekiln::SplitPart", fmt::format("split_parts_{}", index), form);
    ElementLines parts(text_);
    for (const Item& item : schedule.items)
      if (item.parts > 1)
        parts.add(fmt::format("{{{}, {}, {}, {}}}", item.partial + item.part, item.partial, item.parts,
                              item.counter));
    parts.end(true, {});
  }
  if (form == TableForm::constant) constant_bytes_ += item_table_bytes(schedule);
}

void TableWriter::write(std::size_t index, const Schedule& schedule, TableForm form) {
  write_columns(form);
  const auto same = std::find_if(written_.begin(), written_.end(), [&](const Written& earlier) {
    return earlier.form == form && same_items(*earlier.schedule, schedule);
  });
  const std::size_t source = same == written_.end() ? index : same->index;
  if (same == written_.end()) {
    write_items(index, schedule, form);
    written_.push_back({&schedule, form, index});
  }
  const auto reader = [&](std::string_view type, std::string_view function, const std::string& array) {
    text_ +=
        fmt::format("  __device__ static {} {}(int index) {{ return {}[index]; }}\n", type, function, array);
  };
  text_ += fmt::format("struct Table{} {{\n", index);
  reader("int", "column", columns_name(form));
  reader("sparsekiln::Item", "item", fmt::format("items_{}", source));
  reader("int", "worker_begin", fmt::format("worker_begin_{}", source));
  if (schedule.counters > 0) reader("sparsekiln::SplitPart", "split", fmt::format("split_parts_{}", source));
  text_ += "};\n";
}

}  // namespace sparsekiln::cuda
