#include "tests/runtime/contract_memory.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

namespace sparsekiln {
namespace {

constexpr std::int64_t kIn = 24;
constexpr std::int64_t kOut = 32;
constexpr std::int64_t kBlocks = 5;

/// Memory that nothing reads: the operands of a convolution of up to 4 images.
class Memory : public ContractMemory {
 public:
  explicit Memory(const std::string& convolution = "kernel=3x2 stride=2 padding=1 input=8x6",
                  Operation operation = Operation::forward)
      : ContractMemory(3) {
    contract.operation = operation;
    contract.convolution = parse_convolution(convolution);
    contract.batch = Batch::up_to(4);
    contract.block = {16, 8};
    contract.in_features = kIn;
    contract.out_features = kOut;
    contract.blocks = contract.weight_blocks(kBlocks);
  }
  /// The rows of one image.
  [[nodiscard]] std::int64_t x_rows() const { return contract.convolution.input_positions(); }
  [[nodiscard]] std::int64_t y_rows() const { return contract.convolution.output_positions(); }
  [[nodiscard]] void* x() const { return place(0); }
  [[nodiscard]] void* y() const { return place(1); }
  [[nodiscard]] TensorView w() const { return view(place(2), DType::f32, contract.blocks, 16, 8); }
  [[nodiscard]] TensorView w_by_taps() const {
    return dense_view(place(2), {kBlocks, contract.convolution.taps_of_block(), 16, 8});
  }
  /// The operands of so many images, as rows.
  [[nodiscard]] Operands rows(std::int64_t images) const {
    return {.x = view(x(), DType::f32, images * x_rows(), kIn),
            .w = w(),
            .y = view(y(), DType::f32, images * y_rows(), kOut)};
  }
};

TEST_CASE("a convolution takes the rows of whole images, and counts images") {
  const Memory memory;
  CHECK(memory.x_rows() == 48);
  CHECK(memory.y_rows() == 4 * 4);
  for (const std::int64_t images : {1, 3, 4}) {
    const CheckedOperands checked = memory.check(memory.rows(images));
    CHECK(checked.matrices == 1);
    CHECK(checked.first.n == images);
    CHECK(checked.first.x == memory.x());
    CHECK(checked.first.x_stride == kIn);
    CHECK(checked.first.y_stride == kOut);
  }
  CHECK(memory.check(memory.rows(0)).matrices == 0);
}

TEST_CASE("a convolution takes images with an axis for each dimension, whose rows may be apart") {
  const Memory memory;
  Operands operands = memory.rows(2);
  operands.x = dense_view(memory.x(), {2, 8, 6, kIn});
  operands.y = dense_view(memory.y(), {2, 4, 4, kOut});
  CHECK(memory.check(operands).first.n == 2);
  for (std::int32_t axis = 0; axis < 3; ++axis) operands.x.stride[axis] *= 2;
  CHECK(memory.check(operands).first.x_stride == 2 * kIn);
  operands.y.stride[0] += kOut;
  CHECK(memory.refusal(operands) ==
        "y: shape [2, 4, 4, 32] and strides [544, 128, 32, 1]: all positions of all images must be at one "
        "distance from the next; dense memory would work");
}

TEST_CASE("images of one or three dimensions are images, and no batch of matrices") {
  const Memory line("kernel=3 padding=1 input=10");
  Operands operands = line.rows(2);
  operands.x = dense_view(line.x(), {2, 10, kIn});
  operands.y = dense_view(line.y(), {2, 10, kOut});
  CHECK(line.check(operands).first.n == 2);
  CHECK(line.check(operands).matrices == 1);
  const Memory volume("kernel=3x3x3 padding=1 input=2x3x4");
  operands = volume.rows(2);
  operands.x = dense_view(volume.x(), {2, 2, 3, 4, kIn});
  CHECK(volume.check(operands).first.n == 2);
}

TEST_CASE("an axis of one position may have any stride") {
  const Memory memory("kernel=3x1 stride=9x1 padding=1x0 input=8x6");
  Operands operands = memory.rows(1);
  operands.x = dense_view(memory.x(), {1, 8, 6, kIn});
  operands.y = dense_view(memory.y(), {1, 1, 6, kOut});
  operands.x.stride[0] = -7;
  operands.y.stride[0] = 0;
  operands.y.stride[1] = std::int64_t{1} << 60;
  CHECK(memory.check(operands).first.y_stride == kOut);
}

TEST_CASE(
    "rows that are no whole images, or not as many as those of x, are refused with what would be right") {
  const Memory memory;
  Operands operands = memory.rows(2);
  operands.x.shape[0] = 100;
  CHECK(memory.refusal(operands) == "x: 100 rows are no whole number of images of 48 positions");
  operands = memory.rows(2);
  operands.y.shape[0] = 40;
  CHECK(memory.refusal(operands) == "y: 40 rows are no whole number of images of 16 positions");
  operands.y.shape[0] = 96;
  CHECK(memory.refusal(operands) ==
        "y: its 96 rows are 6 images of 16 positions, but x has 2 images, for which it takes 32 rows");
}

TEST_CASE("images of other extents, features or dimensions are refused with those that the kernel takes") {
  const Memory memory;
  const std::string takes =
      ", but the kernel takes n images of 8 x 6 positions: [n, 8, 6, 24], or their rows, [n * 8 * 6, 24]";
  const auto refusal = [&](const std::vector<std::int64_t>& shape) {
    Operands operands = memory.rows(2);
    operands.x = dense_view(memory.x(), shape);
    return memory.refusal(operands);
  };
  CHECK(refusal({2, 8, 6, 24}).empty());
  CHECK(refusal({2, 6, 8, 24}) == "x: rank 4 and shape [2, 6, 8, 24]" + takes);
  CHECK(refusal({2, 24, 8, 6}) == "x: rank 4 and shape [2, 24, 8, 6]" + takes);
  CHECK(refusal({96, 32}) == "x: rank 2 and shape [96, 32]" + takes);
  CHECK(refusal({2, 48, 24}) == "x: rank 3 and shape [2, 48, 24]" + takes);
  CHECK(refusal({2, 1, 8, 6, 24}) == "x: rank 5 and shape [2, 1, 8, 6, 24]" + takes);
  CHECK(refusal({24}) == "x: rank 1 and shape [24]" + takes);
}

TEST_CASE(
    "a dynamic convolution takes images with axes of any extents up to its own, all of one launch alike") {
  const std::string text = "kernel=3x2 stride=2 padding=1 input=up-to:8x6";
  const Memory memory(text);
  Operands operands = memory.rows(2);
  operands.x = dense_view(memory.x(), {2, 5, 6, kIn});
  operands.y = dense_view(memory.y(), {2, 3, 4, kOut});
  const LaunchOperands launch = memory.check(operands).first;
  CHECK(launch.n == 2);
  CHECK(std::vector(launch.images.input, launch.images.input + 3) == std::vector{1, 5, 6});
  CHECK(std::vector(launch.images.output, launch.images.output + 3) == std::vector{1, 3, 4});
  CHECK(launch.rows_of_one == 12);
  operands.y = view(memory.y(), DType::f32, 24, kOut);  // rows, of images whose extents x says
  CHECK(memory.check(operands).first.n == 2);
  operands.y = dense_view(memory.y(), {2, 4, 4, kOut});
  CHECK(memory.refusal(operands).starts_with(
      "y: rank 4 and shape [2, 4, 4, 32], but the kernel takes n images of 3 x 4 positions"));
  const std::string takes =
      ", but the kernel takes images with axes of their own for up to 8 x 6 positions, and enough of "
      "them for an output (kernel=3x2 stride=2x2 padding=1x1 input=up-to:8x6)";
  operands.x = dense_view(memory.x(), {1, 9, 6, kIn});
  CHECK(memory.refusal(operands) == "x: rank 4 and shape [1, 9, 6, 24]" + takes);
  operands.x = dense_view(memory.x(), {1, 0, 6, kIn});
  CHECK(memory.refusal(operands) == "x: rank 4 and shape [1, 0, 6, 24]" + takes);
  operands.x = view(memory.x(), DType::f32, 60, kIn);
  CHECK(memory.refusal(operands) == "x: rank 2 and shape [60, 24]" + takes);

  const Memory back(text, Operation::grad_input);
  operands = {
      .w = back.w(), .dy = dense_view(back.y(), {1, 3, 4, kOut}), .dx = dense_view(back.x(), {1, 6, 6, kIn})};
  const LaunchOperands gradient = back.check(operands).first;
  CHECK(std::vector(gradient.images.input, gradient.images.input + 3) == std::vector{1, 3, 4});
  CHECK(std::vector(gradient.images.output, gradient.images.output + 3) == std::vector{1, 6, 6});
  CHECK(gradient.rows_of_one == 9);  // of each class of residues by the stride
}

TEST_CASE("a convolution's batch is a number of images") {
  const Memory memory;
  CHECK(memory.refusal(memory.rows(5)) == "x: a batch of 5, but the kernel was compiled for at most 4");
}

TEST_CASE("the gradient of the input reads the positions of y, and computes those of x") {
  const Memory memory("kernel=3x2 stride=2 padding=1 input=8x6", Operation::grad_input);
  Operands operands{.w = memory.w(),
                    .dy = view(memory.y(), DType::f32, 2 * memory.y_rows(), kOut),
                    .dx = view(memory.x(), DType::f32, 2 * memory.x_rows(), kIn)};
  CHECK(memory.check(operands).first.n == 2);
  CHECK(memory.check(operands).first.x == memory.y());
  operands.dx = dense_view(memory.x(), {2, 8, 6, kIn});
  CHECK(memory.check(operands).first.n == 2);
  operands.dx.shape[1] = 4;
  CHECK(memory.refusal(operands).starts_with("dx: rank 4 and shape [2, 4, 6, 24]"));
}

TEST_CASE("a transposed convolution reads images of its input's extents and computes those of its output") {
  const std::string text = "kernel=3x2 stride=2 padding=1 transposed input=4x3";
  const Memory memory(text);
  CHECK(memory.x_rows() == 12);
  CHECK(memory.y_rows() == 7 * 4);
  Operands operands = memory.rows(2);
  CHECK(memory.check(operands).first.n == 2);
  operands.x = dense_view(memory.x(), {2, 4, 3, kIn});
  operands.y = dense_view(memory.y(), {2, 7, 4, kOut});
  CHECK(memory.check(operands).first.n == 2);
  operands.y = dense_view(memory.y(), {2, 4, 3, kOut});
  CHECK(memory.refusal(operands).starts_with(
      "y: rank 4 and shape [2, 4, 3, 32], but the kernel takes n images of 7 x 4 positions"));
  const Memory back(text, Operation::grad_input);
  operands = {.w = back.w(),
              .dy = view(back.y(), DType::f32, 2 * back.y_rows(), kOut),
              .dx = view(back.x(), DType::f32, 2 * back.x_rows(), kIn)};
  CHECK(back.check(operands).first.n == 2);
}

TEST_CASE("the weight of a convolution has an axis of the taps that a mask leaves, where blocks are alike") {
  const Memory shared("kernel=3x2 stride=2 padding=1 input=8x6 taps=110011");
  Operands operands = shared.rows(1);
  CHECK(operands.w.shape[0] == 20);
  CHECK(shared.refusal(operands).empty());
  operands.w = shared.w_by_taps();
  CHECK(operands.w.shape[1] == 4);
  CHECK(shared.refusal(operands).empty());
  operands.w.shape[1] = 6;
  CHECK(shared.refusal(operands) ==
        "w: rank 4 and shape [5, 6, 16, 8], but the kernel takes dense [20, 16, 8] or [5, 4, 16, 8]");
  const Memory each("kernel=3x2 stride=2 padding=1 input=8x6 taps=110011000001111111000000100000");
  operands = each.rows(1);
  CHECK(operands.w.shape[0] == 12);
  CHECK(each.refusal(operands).empty());
  operands.w = dense_view(operands.w.data, {2, 6, 16, 8});
  CHECK(each.refusal(operands) ==
        "w: rank 4 and shape [2, 6, 16, 8], but the kernel takes dense [12, 16, 8]");
}

TEST_CASE("the residual of a convolution has the rows of y, the z of its gradient those of dy") {
  Memory memory;
  memory.contract.epilogue.residual = true;
  Operands operands = memory.rows(2);
  operands.residual = operands.y;  // in place
  CHECK(memory.refusal(operands).empty());
  operands.residual = view(memory.x(), DType::f32, 2 * memory.x_rows(), kOut);
  CHECK(memory.refusal(operands) ==
        "residual: its 96 rows are 6 images of 16 positions, but x has 2 images, for which it takes 32 rows");
  Memory gradient("kernel=3x2 stride=2 padding=1 input=8x6", Operation::grad_input);
  gradient.contract.derivative = Activation::relu;
  operands = {.w = gradient.w(),
              .dy = view(gradient.y(), DType::f32, gradient.y_rows(), kOut),
              .dx = view(gradient.x(), DType::f32, gradient.x_rows(), kIn),
              .z = view(gradient.y(), DType::f32, gradient.y_rows(), kOut)};
  CHECK(gradient.refusal(operands).empty());
}

TEST_CASE("scales of rows are float32, one for each block row, for V as well") {
  Memory memory;
  memory.contract.epilogue = {.activation = Activation::silu, .glu = true, .row_scale = true};
  Operands operands = memory.rows(1);
  operands.v = operands.w;
  CHECK(memory.refusal(operands).starts_with("row_scale: it was not given"));
  std::vector<float> scales(kOut / 16);
  operands.row_scale = dense_view(scales.data(), {kOut / 16});
  CHECK(memory.refusal(operands).starts_with("v_row_scale: it was not given"));
  operands.v_row_scale = dense_view(scales.data(), {kOut / 16});
  CHECK(memory.refusal(operands).empty());
  CHECK(memory.check(operands).first.vectors[0] == scales.data());
  CHECK(memory.check(operands).first.vectors[1] == scales.data());
  operands.row_scale = dense_view(scales.data(), {kOut / 16 - 1});
  CHECK(memory.refusal(operands).find("one for each block row") != std::string::npos);
}

TEST_CASE("an edge bias has a dense row of each edge situation, of the type of sums") {
  Memory memory;
  memory.contract.epilogue.edge_bias = true;
  memory.contract.edge_situations = 6;
  Operands operands = memory.rows(1);
  CHECK(memory.refusal(operands).starts_with("edge_gain: it was not given"));
  std::vector<float> gain(6 * kOut);
  std::vector<float> bias(6 * kOut);
  operands.edge_gain = dense_view(gain.data(), {6, kOut});
  operands.edge_bias = dense_view(bias.data(), {6, kOut});
  CHECK(memory.refusal(operands).empty());
  CHECK(memory.check(operands).first.edge_gain == gain.data());
  CHECK(memory.check(operands).first.edge_bias == bias.data());
  operands.edge_bias = dense_view(bias.data(), {5, kOut});
  CHECK(memory.refusal(operands) ==
        "edge_bias: rank 2, shape [5, 32] and strides [32, 1], but the kernel takes dense [6, 32]: a row for "
        "each edge situation");
  operands.edge_bias = dense_view(bias.data(), {6 * kOut});
  CHECK(memory.refusal(operands).find("rank 1") != std::string::npos);
  operands.edge_bias = dense_view(bias.data(), {6, kOut});
  operands.edge_bias.stride[0] = kOut + 1;
  CHECK(memory.refusal(operands).find("strides [33, 1]") != std::string::npos);
  operands.edge_bias = dense_view(bias.data(), {6, kOut});
  operands.edge_bias.dtype = DType::f16;
  CHECK(memory.refusal(operands).find("its type is f16") != std::string::npos);
  operands.edge_bias = dense_view(memory.y(), {6, kOut});
  CHECK(memory.refusal(operands).find("overlaps edge_bias") != std::string::npos);
}

TEST_CASE("the weight of a convolution is taken with and without an axis of taps") {
  const Memory memory;
  Operands operands = memory.rows(1);
  operands.w = memory.w_by_taps();
  CHECK(memory.refusal(operands).empty());
  const std::string takes = ", but the kernel takes dense [30, 16, 8] or [5, 6, 16, 8]";
  operands.w.shape[1] = 3;
  CHECK(memory.refusal(operands) == "w: rank 4 and shape [5, 3, 16, 8]" + takes);
  operands.w = memory.w_by_taps();
  operands.w.stride[0] += 128;
  CHECK(memory.refusal(operands) == "w: rank 4 and shape [5, 6, 16, 8]" + takes);
  operands.w = memory.w();
  operands.w.shape[0] = 5;
  CHECK(memory.refusal(operands) == "w: rank 3 and shape [5, 16, 8]" + takes);
}

TEST_CASE("a linear layer takes no weight with taps") {
  Memory memory;
  memory.contract.convolution = {};
  memory.contract.blocks = kBlocks;
  const Operands operands{.x = view(memory.x(), DType::f32, 2, kIn),
                          .w = dense_view(memory.w().data, {kBlocks, 1, 16, 8}),
                          .y = view(memory.y(), DType::f32, 2, kOut)};
  CHECK(memory.refusal(operands) ==
        "w: rank 4 and shape [5, 1, 16, 8], but the kernel takes dense [5, 16, 8]");
}

TEST_CASE("rows of images keep the contract's strides and alignment") {
  Memory memory;
  Operands operands = memory.rows(2);
  operands.x.stride[0] = kIn + 2;
  CHECK(memory.refusal(operands) ==
        "x: strides [26, 1]: the last must be 1, the first at least 24 and a multiple of 4");
  operands = memory.rows(2);
  operands.y.stride[1] = 2;
  CHECK(memory.refusal(operands) ==
        "y: strides [32, 2]: the last must be 1, the first at least 32 and a multiple of 4");
  operands = memory.rows(2);
  operands.x.shape[1] = operands.x.stride[0] = memory.contract.in_features = 22;
  CHECK(memory.refusal(operands) ==
        "x: strides [22, 1]: the last must be 1, the first at least 22 and a multiple of 4; a kernel of a "
        "smaller alignment takes dense rows");
  memory.contract.in_features = kIn;
  operands = memory.rows(2);
  operands.x.data = static_cast<std::byte*>(operands.x.data) + 4;
  CHECK(memory.refusal(operands).ends_with("is not aligned to 16 bytes"));
}

TEST_CASE("a convolution of feature-major activations takes images, contiguous and at any distance") {
  Memory memory;
  memory.contract.order = ActivationOrder::feature_major;
  Operands operands{.x = dense_view(memory.x(), {2, kIn, 8, 6}),
                    .w = memory.w(),
                    .y = dense_view(memory.y(), {2, kOut, 4, 4})};
  CHECK(memory.check(operands).first.n == 2);
  CHECK(memory.check(operands).first.x_stride == kIn * 48);
  operands.y = dense_view(memory.y(), {2, kOut, 16});
  operands.x.stride[0] += 4;
  CHECK(memory.check(operands).first.x_stride == kIn * 48 + 4);
  operands.x.stride[0] -= 2;
  CHECK(memory.refusal(operands) ==
        "x: shape [2, 24, 8, 6] and strides [1154, 48, 6, 1]: channels-first, the 1152 elements of an image "
        "must be contiguous, and images 1152 or more apart, a multiple of 4; dense memory would work");
  operands.x = dense_view(memory.x(), {2, 8, 6, kIn});
  CHECK(
      memory.refusal(operands) ==
      "x: rank 4 and shape [2, 8, 6, 24], but the kernel takes n images of 8 x 6 positions, channels-first: "
      "[n, 24, 8, 6] or [n, 24, 8 * 6]");
  operands.x = dense_view(memory.x(), {1, kIn, 8, 6});
  CHECK(memory.refusal(operands) == "y: it has 2 images, but x has 1");
  operands.x = dense_view(memory.x(), {2, kIn, 8, 6});
  std::swap(operands.x.stride[2], operands.x.stride[3]);
  CHECK(memory.refusal(operands).starts_with("x: shape [2, 24, 8, 6] and strides [1152, 48, 1, 6]"));
  operands.x.stride[2] = 6;
  operands.x.stride[3] = 1;
  operands.y.data = static_cast<std::byte*>(operands.x.data) + (2 * kIn * 48 - 4) * 4;
  CHECK(memory.refusal(operands).starts_with("y: it overlaps x"));
  operands.y.data = static_cast<std::byte*>(operands.x.data) + 2 * kIn * 48 * 4;
  CHECK(memory.refusal(operands).empty());
}

TEST_CASE("what a convolution computes must overlap no row of what it reads") {
  const Memory memory;
  Operands operands = memory.rows(2);
  const std::int64_t last = (2 * memory.x_rows() - 1) * kIn * 4;  // the last row of x, in bytes
  operands.y.data = static_cast<std::byte*>(operands.x.data) + last;
  CHECK(memory.refusal(operands).starts_with("y: it overlaps x"));
  operands.y.data = static_cast<std::byte*>(operands.x.data) + last + kIn * 4;
  CHECK(memory.refusal(operands).empty());
}

}  // namespace
}  // namespace sparsekiln
