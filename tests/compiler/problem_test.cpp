#include <sparsekiln/problem.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "compiler/computation_fields.h"

namespace sparsekiln {
namespace {

TEST_CASE("block shapes are read from text") {
  CHECK(parse_block_shape("32") == BlockShape{32, 32});
  CHECK(parse_block_shape("8x64") == BlockShape{8, 64});
  CHECK(parse_block_shape(to_string(BlockShape{128, 16})) == BlockShape{128, 16});
}

TEST_CASE("block shapes that make no sense are refused") {
  for (const char* text :
       {"0", "7", "", "x", "32x", "x32", "32x32x32", "-8", "8x-8", "99999999999999999999", "32 "}) {
    CAPTURE(text);
    CHECK_THROWS_AS((void)parse_block_shape(text), Error);
  }
}

TEST_CASE("batches are read from text") {
  CHECK(parse_batch("64") == Batch(64));
  CHECK(parse_batch("0") == Batch(0));
  CHECK(parse_batch("up-to:8192") == Batch::up_to(8192));
  CHECK(parse_batch(to_string(Batch::up_to(7))) == Batch::up_to(7));
}

TEST_CASE("batches that make no sense are refused") {
  for (const char* text : {"-1", "", "up-to:", "up-to:-3", "1e3", "2000000000"}) {
    CAPTURE(text);
    CHECK_THROWS_AS((void)parse_batch(text), Error);
  }
}

TEST_CASE("a message about an unknown type lists the known ones") {
  CHECK_THROWS_WITH((void)parse_dtype("f33"),
                    "data type 'f33' is not known: one of f32, f16, bf16, f64, e4m3, e5m2, i8, i32");
}

/// Why a problem is refused; empty where it is not.
std::string refusal(const std::function<void(Problem&)>& change) {
  Problem problem;
  problem.layout = patterns::random(3, 5, 0.5, 1);
  problem.block = {16, 8};
  change(problem);
  try {
    validate(problem);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return "";
}

TEST_CASE("the type of a result follows from that of the operands, where none is asked for") {
  CHECK(result_type(DType::f16) == DType::f16);
  CHECK(result_type(DType::e4m3) == DType::bf16);
  CHECK(result_type(DType::e5m2) == DType::bf16);
  CHECK(result_type(DType::i8) == DType::i32);
  Options options;
  options.dtype = DType::i8;
  CHECK(computation_of(options).out_dtype == DType::i32);
  options.out_dtype = DType::f16;
  CHECK(computation_of(options).out_dtype == DType::f16);
}

TEST_CASE("8-bit types have products of batch-major rows, and what is computed from their sums") {
  const auto refused = [](DType dtype, const std::function<void(Problem&)>& change) {
    return refusal([&](Problem& p) {
      p.dtype = dtype;
      p.out_dtype = result_type(dtype);
      change(p);
    });
  };
  for (const DType dtype : {DType::e4m3, DType::e5m2, DType::i8}) {
    CHECK(refused(dtype, [](Problem&) {}) == "");
    CHECK(refused(dtype, [](Problem& p) {
            p.out_dtype = DType::f16;
            p.epilogue = {.scale = true, .bias = true, .residual = true, .row_scale = true};
          }) == "");
    CHECK(refused(dtype, [](Problem& p) { p.operation = Operation::grad_weight; }).find("f16 or bf16") !=
          std::string::npos);
    CHECK(refused(dtype, [](Problem& p) { p.order = ActivationOrder::feature_major; }).find("batch-major") !=
          std::string::npos);
    CHECK(refused(dtype, [](Problem& p) { p.block_scales = true; }).find("row_scale") != std::string::npos);
    CHECK(refused(dtype, [](Problem& p) { p.epilogue = {.lstm = true}; }).find("f16 or bf16") !=
          std::string::npos);
  }
  CHECK(refused(DType::e4m3, [](Problem& p) { p.out_dtype = DType::e4m3; }) ==
        "output type e4m3 of e4m3 operands: it is bf16, f16 or f32");
  CHECK(refused(DType::i8, [](Problem& p) { p.epilogue.bias = true; }).find("these are the sums") !=
        std::string::npos);
  CHECK(refused(DType::i32, [](Problem&) {}) ==
        "operands of type i32: it is a result of i8, which would work");
  CHECK(refused(DType::f32, [](Problem& p) { p.epilogue.row_scale = true; }).find("e4m3, e5m2 and i8") !=
        std::string::npos);
}

TEST_CASE("what makes no sense on any target is refused, with what would work") {
  CHECK(refusal([](Problem&) {}) == "");
  CHECK(refusal([](Problem& p) { p.block.in = 7; }).find("one of 8, 16") != std::string::npos);
  CHECK(refusal([](Problem& p) { p.batch = std::int64_t{1} << 30; }) == "");
  CHECK(refusal([](Problem& p) { p.batch = (std::int64_t{1} << 30) + 1; }) ==
        "a batch of 1073741825: a batch is 0 to 1073741824");
  CHECK(refusal([](Problem& p) {
          p.dtype = DType::f16;
          p.out_dtype = DType::bf16;
        }) == "output type bf16 of f16 operands: it is f16 or f32");
  CHECK(refusal([](Problem& p) { p.dtype = DType::f64; }) == "output type f32 of f64 operands: it is f64");
  CHECK(refusal([](Problem& p) {
          p.dtype = p.out_dtype = DType::f64;
          p.alignment = 4;
        }) == "activations of f64 aligned to 4 bytes: 16 or 8 would work");
  CHECK(refusal([](Problem& p) { p.cut_out_features = 32; }) ==
        "32 output features: 3 blocks of 16 hold 33 to 48");
  CHECK(refusal([](Problem& p) { p.cut_in_features = 41; }) ==
        "41 input features: 5 blocks of 8 hold 33 to 40");
  CHECK(refusal([](Problem& p) { p.cut_in_features = 33; }) == "");
  CHECK(refusal([](Problem& p) { p.alignment = 2; }) ==
        "activations of f32 aligned to 2 bytes: 16, 8 or 4 would work");
  CHECK(refusal([](Problem& p) { p.alignment = 6; }).find("aligned to 6 bytes") != std::string::npos);
}

TEST_CASE(
    "a mask of taps is of all blocks or of each, and a transposed convolution has the layout's rows as x") {
  const std::int64_t blocks = patterns::random(3, 5, 0.5, 1).blocks();
  const auto with_mask = [](std::int64_t digits) {
    return refusal([&](Problem& p) {
      p.convolution = parse_convolution("kernel=3 input=9 taps=" + std::string(digits, '1'));
    });
  };
  CHECK(with_mask(3).empty());
  CHECK(with_mask(3 * blocks).empty());
  CHECK(
      with_mask(3 * (blocks + 1)) ==
      fmt::format("a convolution of {} blocks with a mask of the taps of {}: one of 3 digits for all, or of "
                  "{} for each block, would work",
                  blocks, blocks + 1, 3 * blocks));
  Problem problem;
  problem.layout = patterns::random(3, 5, 0.5, 1);
  problem.block = {16, 8};
  problem.convolution = parse_convolution("kernel=3 stride=2 transposed input=5 taps=101");
  validate(problem);
  CHECK(problem.in_features() == 48);
  CHECK(problem.out_features() == 40);
  CHECK(problem.input_rows(2) == 10);
  CHECK(problem.output_rows(2) == 22);
  CHECK(problem.product_rows(2) == 10);
  CHECK(problem.weight_blocks(blocks) == 2 * blocks);
  CHECK(problem.flops(2) == 2.0 * 2 * static_cast<double>(blocks) * 16 * 8 * 10);
}

TEST_CASE("the features of a convolution are cut as those of a linear layer, whichever way it goes") {
  const auto refusal_of = [](const char* geometry, std::int64_t in, std::int64_t out) {
    return refusal([&](Problem& p) {
      p.convolution = parse_convolution(geometry);
      p.cut_in_features = in;
      p.cut_out_features = out;
    });
  };
  constexpr const char* kForward = "kernel=3 input=9";
  constexpr const char* kTransposed = "kernel=3 transposed input=9";
  CHECK(refusal_of(kForward, 33, 47) == "");
  CHECK(refusal_of(kTransposed, 47, 33) == "");
  CHECK(refusal_of(kForward, 33, 32) == "32 output features: 3 blocks of 16 hold 33 to 48");
  CHECK(refusal_of(kTransposed, 32, 33) == "32 input features: 3 blocks of 16 hold 33 to 48");
}

TEST_CASE("an epilogue, a derivative or a gradient that the operation has not is refused") {
  CHECK(refusal([](Problem& p) {
          p.operation = Operation::grad_input;
          p.epilogue.bias = true;
        }).starts_with("epilogue bias of grad_input: a gradient's is scale or none"));
  CHECK(refusal([](Problem& p) {
          p.operation = Operation::grad_input;
          p.epilogue.scale = true;
          p.derivative = Activation::gelu;
        }) == "");
  CHECK(refusal([](Problem& p) { p.epilogue.glu = true; }).starts_with("epilogue glu: it multiplies by"));
  CHECK(refusal([](Problem& p) { p.derivative = Activation::relu; }) ==
        "derivative relu of forward: gradients have one; epilogue relu would apply the function");
  CHECK(refusal([](Problem& p) { p.bias_gradient = true; }) ==
        "bias_gradient of forward: it is a by-product of grad_weight");
  CHECK(refusal([](Problem& p) {
          p.operation = Operation::grad_weight;
          p.block_scale_gradient = true;
        }) == "block_scale_gradient without block_scales: they go together");
}

TEST_CASE("an edge bias is a convolution's, and goes without a bias and a glu pair") {
  const auto with = [](const char* convolution, Epilogue epilogue) {
    return refusal([&](Problem& p) {
      p.convolution = parse_convolution(convolution);
      p.epilogue = epilogue;
      p.epilogue.edge_bias = true;
    });
  };
  constexpr const char* kGeometry = "kernel=3 padding=1 input=8x8";
  CHECK(with(kGeometry, {.scale = true, .activation = Activation::relu, .residual = true}).empty());
  CHECK(with("none", {}) ==
        "epilogue edge_bias: an edge bias is a convolution's, and this is a linear layer; bias would work");
  CHECK(with(kGeometry, {.bias = true}) ==
        "epilogue bias+edge_bias: an edge bias takes the place of the bias; one of the two would work");
  CHECK(with(kGeometry, {.activation = Activation::silu, .glu = true}) ==
        "epilogue edge_bias+silu+glu: a glu pair has no edge bias; bias, or two products, would work");
  CHECK(with("kernel=70 padding=35 input=100x100", {}).find("more than 4096 ways") != std::string::npos);
  CHECK(refusal([&](Problem& p) {
          p.convolution = parse_convolution(kGeometry);
          p.operation = Operation::grad_input;
          p.epilogue.edge_bias = true;
        }).starts_with("epilogue edge_bias of grad_input: a gradient's is scale or none"));
}

TEST_CASE(
    "a layout may have as many empty rows and columns as a kernel can bear, and one more for each block") {
  const auto refusal_of = [](std::int64_t rows, std::int64_t cols, std::int64_t blocks) {
    std::vector<std::int32_t> crow(static_cast<std::size_t>(rows) + 1, static_cast<std::int32_t>(blocks));
    crow.front() = 0;  // all in the first row
    std::vector<std::int32_t> col;
    for (std::int32_t i = 0; i < blocks; ++i) col.push_back(i);
    return refusal(
        [&](Problem& p) { p.layout = Layout::from_csr(rows, cols, std::move(crow), std::move(col)); });
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 18;
  CHECK(refusal_of(kMost, 0, 0).empty());
  CHECK(refusal_of(0, kMost, 0).empty());
  CHECK(refusal_of(kMost / 2, kMost / 2 + 1, 0) ==
        "a kernel for a layout of 131072 x 131073 blocks, of which 0 are present: 262145 of its rows and "
        "columns are "
        "empty, and 262144 may be; a layout without the empty ones, of smaller matrices, would work");
  CHECK(refusal_of(1 + kMost + 100, 100, 100).empty());
  CHECK_FALSE(refusal_of(1 + kMost + 101, 100, 100).empty());
  CHECK_FALSE(refusal_of(Layout::kMaxExtent, 1, 1).empty());
  CHECK_FALSE(refusal_of(1, Layout::kMaxExtent, 1).empty());
}

TEST_CASE("an epilogue is read in any order of its parts and written in one") {
  const Epilogue all = parse_epilogue("residual+glu+silu+bias+scale");
  CHECK(all == Epilogue{true, true, Activation::silu, true, true});
  CHECK(to_string(all) == "scale+bias+silu+glu+residual");
  CHECK(parse_epilogue(to_string(all)) == all);
  CHECK(parse_epilogue("none") == Epilogue{});
  CHECK(to_string(Epilogue{}) == "none");
  const Epilogue edges = parse_epilogue("relu+edge_bias+scale");
  CHECK(edges == Epilogue{.scale = true, .activation = Activation::relu, .edge_bias = true});
  CHECK(to_string(edges) == "scale+edge_bias+relu");
  for (const char* text : {"", "bias+", "bias+bias", "relu+silu", "none+bias", "cube"}) {
    CAPTURE(text);
    CHECK_THROWS_AS((void)parse_epilogue(text), Error);
  }
}

TEST_CASE("a layer normalisation is read in any order of its parts and written in one") {
  const Epilogue layer{.activation = Activation::relu, .layer_norm = true, .multiply = true, .add = true};
  CHECK(parse_epilogue("relu+add+layer_norm+multiply") == layer);
  CHECK(to_string(layer) == "layer_norm+multiply+add+relu");
  const Epilogue cell{.residual = true, .lstm = true, .layer_norm = true, .multiply = true};
  CHECK(parse_epilogue("residual+multiply+lstm+layer_norm") == cell);
  CHECK(to_string(cell) == "layer_norm+multiply+lstm+residual");
  for (const char* text : {"layer_norm+layer_norm", "layer_norm+multiply+multiply", "layer_norm+relu+gelu"}) {
    CAPTURE(std::string(text));
    CHECK_THROWS_AS((void)parse_epilogue(text), Error);
  }
}

TEST_CASE(
    "a layer normalisation goes with what its formula has, and anything else is refused for what it is") {
  const auto with = [](
                        const char* epilogue, const std::function<void(Problem&)>& change = [](Problem&) {}) {
    return refusal([&](Problem& p) {
      p.layout = patterns::random(8, 5, 0.5, 1);
      p.epilogue = parse_epilogue(epilogue);
      change(p);
    });
  };
  const auto gradient = [](Problem& p) { p.operation = Operation::grad_input; };
  for (const char* text :
       {"layer_norm", "layer_norm+multiply+add+relu", "layer_norm+lstm", "layer_norm+multiply+lstm"}) {
    CHECK(with(text).empty());
    CHECK(with(text, gradient).empty());
    CHECK(with((std::string(text) + "+residual").c_str(), gradient).empty());
  }
  CHECK(with("layer_norm", [](Problem& p) { p.cut_out_features = 123; }).empty());
  CHECK(with("layer_norm", [](Problem& p) { p.block_scales = true; }).empty());

  const std::string fits =
      "layer normalisation goes with multiply, add and one activation, or with multiply and lstm, and for "
      "grad_input "
      "with residual as well; its gain and bias are always there";
  for (const char* text :
       {"bias+layer_norm", "scale+layer_norm", "layer_norm+silu+glu", "layer_norm+residual",
        "layer_norm+add+lstm", "layer_norm+relu+lstm", "layer_norm+lstm+keep"}) {
    CAPTURE(std::string(text));
    const std::string written = to_string(parse_epilogue(text));
    CHECK(with(text) == "epilogue " + written + " of forward: " + fits);
  }
  CHECK(with("layer_norm+lstm+keep", gradient) == "epilogue layer_norm+lstm+keep of grad_input: " + fits);
  CHECK(with("multiply+add").starts_with("epilogue multiply+add: multiply and add are parts of layer_norm"));
  CHECK(with("multiply+lstm").find("layer_norm") == std::string::npos);
  CHECK_FALSE(with("multiply+lstm").empty());
  CHECK(with("layer_norm", [](Problem& p) {
          p.operation = Operation::grad_weight;
        }).starts_with("epilogue layer_norm of grad_weight: it multiplies the gradient of the sums"));
  CHECK(with("layer_norm", [](Problem& p) { p.convolution = parse_convolution("kernel=3 input=9"); }) ==
        "epilogue layer_norm of forward: it is a linear layer's; one without --conv would work");
  CHECK(with("layer_norm", [](Problem& p) {
          p.order = ActivationOrder::feature_major;
        }).ends_with("batch-major activations would work"));
  CHECK(with("layer_norm", [](Problem& p) {
          p.operation = Operation::grad_input;
          p.derivative = Activation::relu;
        }).ends_with("none would work"));
}

TEST_CASE("a layer normalisation with a cell has the rows of four gates, of whole blocks") {
  const auto with = [](std::int64_t rows, Operation operation, std::int64_t cut) {
    return refusal([&](Problem& p) {
      p.layout = patterns::random(rows, 5, 0.5, 1);
      p.operation = operation;
      p.epilogue = parse_epilogue("layer_norm+lstm");
      p.cut_out_features = cut;
    });
  };
  CHECK(with(8, Operation::forward, 0).empty());
  CHECK(with(6, Operation::forward, 0) ==
        "epilogue layer_norm+lstm of forward: the layout has the rows of four gates, and 6 are no multiple "
        "of 4");
  CHECK(with(8, Operation::forward, 125) ==
        "epilogue layer_norm+lstm of forward: the features of its gates fill whole blocks");
  // Its gradient has the layout of the product whose input the cell is.
  CHECK(with(6, Operation::grad_input, 0).empty());
  CHECK(with(6, Operation::grad_input, 93).empty());
}

TEST_CASE("f16 is taken, and tf32 for f32 operands alone") {
  Problem problem;
  problem.dtype = DType::f16;
  CHECK_NOTHROW(validate(problem));  // to f32
  problem.out_dtype = DType::f16;
  CHECK_NOTHROW(validate(problem));
  problem.math = Math::tf32;
  CHECK_THROWS_WITH(validate(problem),
                    "math tf32 with f16 operands: it rounds f32 operands; math ieee would work");
  problem.dtype = problem.out_dtype = DType::f32;
  CHECK_NOTHROW(validate(problem));
  CHECK(parse_math("tf32") == Math::tf32);
  CHECK_THROWS_AS((void)parse_math("fp8"), Error);
}

}  // namespace
}  // namespace sparsekiln
