#include "runtime/operand_refusal.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sparsekiln/error.h>

namespace sparsekiln {
namespace {

[[noreturn, gnu::cold]] void refuse_address(std::string_view name, const void* address,
                                            std::int64_t alignment) {
  refuse(name, address == nullptr
                   ? "its address is null"
                   : fmt::format("its address {} is not aligned to {} bytes", address, alignment));
}

}  // namespace

void refuse(std::string_view name, const std::string& why) {
  throw Error(ErrorKind::invalid_argument, fmt::format("{}: {}", name, why));
}

void refuse_type(std::string_view name, DType is, DType wanted) {
  refuse(name, fmt::format("its type is {}, the kernel was compiled for {}", sparsekiln::name(is),
                           sparsekiln::name(wanted)));
}

void refuse_shape(std::string_view name, const TensorView& is, const std::string& takes) {
  refuse(name, fmt::format("rank {} and shape {}, but the kernel takes {}", is.rank, shape_of(is), takes));
}

void refuse_strides(std::string_view name, const TensorView& is, const std::string& takes) {
  refuse(name, fmt::format("rank {}, shape {} and strides {}, but the kernel takes {}", is.rank, shape_of(is),
                           list_of(is.stride, is.rank), takes));
}

void refuse_stride(std::string_view name, std::int64_t row, std::int64_t element, std::int64_t least,
                   std::int64_t unit) {
  refuse(name, fmt::format(
                   "strides [{}, {}]: the last must be 1, the first at least {} and a multiple of {}{}", row,
                   element, least, unit,
                   row == least && element == 1 ? "; a kernel of a smaller alignment takes dense rows" : ""));
}

void check_address(std::string_view name, const void* address, std::int64_t alignment) {
  if (address == nullptr ||
      reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(alignment) != 0)
    refuse_address(name, address, alignment);
}

bool takes_batch(std::int64_t n, Batch batch) {
  return batch.dynamic() ? n >= 0 && n <= batch.bound() : n == batch.bound();
}

void refuse_batch(std::string_view name, std::int64_t n, Batch batch) {
  refuse(name,
         batch.dynamic()
             ? fmt::format("a batch of {}, but the kernel was compiled for at most {}", n, batch.bound())
             : fmt::format("a batch of {}, but the kernel was compiled for {}; Batch::up_to takes several", n,
                           batch.bound()));
}

std::string list_of(const std::int64_t (&extents)[kMaxRank], std::int32_t rank) {
  const auto count = static_cast<std::size_t>(std::clamp(rank, 0, kMaxRank));
  return fmt::format("[{}]", fmt::join(std::span(extents).first(count), ", "));
}

std::string shape_of(const TensorView& view) { return list_of(view.shape, view.rank); }

void refuse_overlap(std::string_view computed, std::string_view read) {
  refuse(computed,
         fmt::format("it overlaps {}, which the kernel reads while it writes; memory of its own would work",
                     read));
}

void refuse_itself(std::string_view computed) {
  refuse(computed,
         "its matrices overlap one another, or lie in each other's gaps; matrices one after the "
         "other, or side by side in the rows of one wider matrix, would work");
}
void refuse_shared(std::string_view computed, std::string_view other) {
  refuse(computed,
         fmt::format("it overlaps {}, which is computed as well; memory of its own would work", other));
}

}  // namespace sparsekiln
