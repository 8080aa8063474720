#include <sparsekiln/problem.h>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

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
  CHECK_THROWS_WITH((void)parse_dtype("f33"), "data type 'f33' is not known: one of f32, f16, bf16");
}

TEST_CASE("validate refuses what is not built") {
  Problem problem;
  CHECK_NOTHROW(validate(problem));
  problem.block.in = 7;
  CHECK_THROWS_AS(validate(problem), Error);
  problem.block.in = 8;
  problem.operation = Operation::grad_weight;
  CHECK_THROWS_AS(validate(problem), Error);
  problem = Problem{};
  problem.dtype = DType::f16;
  problem.out_dtype = DType::bf16;
  CHECK_THROWS_AS(validate(problem), Error);
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
