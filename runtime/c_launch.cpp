#include "runtime/c_object.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "compiler/operand_table.h"
#include "runtime/c_operands.h"
#include "runtime/output_shape.h"

// Launches of the C interface.

using sparsekiln::Error;
using sparsekiln::ErrorKind;
using sparsekiln::give_view;
using sparsekiln::given;
using sparsekiln::guarded;
using sparsekiln::OperandForm;
using sparsekiln::OperandRow;
using sparsekiln::Operands;
using sparsekiln::taken;
using sparsekiln::TakenOperands;

namespace {

std::int32_t dimensions_of(const OperandRow& row, const sparsekiln::OperandContract& contract) {
  switch (row.form) {
    case OperandForm::activation:
      return 2;
    case OperandForm::weight:
      return 3;
    case OperandForm::dense:
      return extents_of(row.per, contract).rank;
  }
  return 0;
}

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::invalid_argument, why); }

Operands operands_of(const sk_operand* operands, std::size_t count) {
  Operands views;
  std::uint64_t listed = 0;  // a bit for each row
  for (std::size_t i = 0; i < count; ++i) {
    const sk_operand& operand = (&given(operands, "operands"))[i];
    if (operand.name == nullptr) refuse(fmt::format("operand {}: it has no name", i));
    const OperandRow& row = sparsekiln::operand_row(operand.name);
    const std::uint64_t bit = std::uint64_t{1} << (&row - sparsekiln::operand_rows().data());
    if ((listed & bit) != 0) refuse(fmt::format("operand {}: it is listed twice", row.name));
    listed |= bit;
    views.*row.view = sparsekiln::view_of(row.name, operand.tensor);
  }
  return views;
}

}  // namespace

const char* sk_operand_name(size_t number) {
  const auto rows = sparsekiln::operand_rows();
  return number < rows.size() ? rows[number].name.data() : nullptr;  // a literal, which ends with 0
}

const char* sk_operand_alias(size_t number) {
  const auto rows = sparsekiln::operand_rows();
  return number < rows.size() ? rows[number].alias.data() : nullptr;  // null of an empty view
}

sk_status sk_kernel_operand_count(const sk_kernel* kernel, size_t* count) {
  return guarded([&] {
    const TakenOperands operands(given(kernel, "kernel").kernel.binary().operands);
    given(count, "count") = static_cast<std::size_t>(operands.end() - operands.begin());
  });
}

sk_status sk_kernel_describe_operand(const sk_kernel* kernel, size_t index, sk_operand_view* view) {
  return guarded([&] {
    const sparsekiln::OperandContract& contract = given(kernel, "kernel").kernel.binary().operands;
    const TakenOperands operands(contract);
    const auto count = static_cast<std::size_t>(operands.end() - operands.begin());
    if (index >= count)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("operand {}: there are {}, counted from 0", index, count));
    const OperandRow& row = *operands.begin()[index];
    give_view(view, {.size = 0,
                     .name = row.name.data(),
                     .dtype = name(type_of(row.type, contract)).data(),
                     .is_written = row.computed(contract),
                     .is_added_to = row.access(contract) == sparsekiln::Access::added_to,
                     .is_main = row.is_main(),
                     .is_activation = row.form == OperandForm::activation,
                     .dimensions = dimensions_of(row, contract)});
  });
}

sk_status sk_kernel_output_shape(const sk_kernel* kernel, const char* operand, const DLTensor* first,
                                 int64_t* shape, int32_t* dimensions) {
  return guarded([&] {
    const sparsekiln::OperandContract& contract = given(kernel, "kernel").kernel.binary().operands;
    const OperandRow& row = sparsekiln::operand_row(&given(operand, "operand"));
    const DLTensor& from = given(first, "first");
    if (from.ndim > 0) given(from.shape, "shape of first");
    std::int64_t& extent = given(shape, "shape");
    std::int32_t& rank = given(dimensions, "dimensions");
    const auto extents = sparsekiln::output_shape(
        row, contract, {from.shape, static_cast<std::size_t>(std::max(from.ndim, 0))});
    static_assert(sparsekiln::kMaxRank == SK_MOST_DIMENSIONS);
    std::copy(extents.begin(), extents.end(), &extent);
    rank = static_cast<std::int32_t>(extents.size());
  });
}

void sk_launch_init_sized(sk_launch* launch, size_t size) {
  sk_launch none{};
  none.alpha = 1;
  none.epsilon = Operands{}.epsilon;
  sparsekiln::write_struct(launch, size, none);
}

sk_status sk_kernel_run(const sk_kernel* kernel, const sk_operand* operands, size_t count,
                        const sk_launch* launch) {
  return guarded([&] {
    Operands views = operands_of(operands, count);
    if (launch != nullptr) {
      const sk_launch from = taken(launch, sk_launch_init_sized, "launch");
      if (from.reserved != 0) refuse("launch: its member reserved is not 0");
      views.alpha = from.alpha;
      views.beta = from.beta;
      views.epsilon = from.epsilon;
      views.workspace = from.workspace;
      views.workspace_size = from.workspace_size;
      views.threads = from.threads;
      views.stream = from.stream;
    }
    given(kernel, "kernel").kernel(views);
  });
}
