#include "compiler/cpu/object.h"

#include <string>
#include <string_view>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

#include "compiler/activation.h"
#include "compiler/cpu/emit.h"
#include "compiler/schedule.h"

namespace sparsekiln::cpu {
namespace {

Problem small_problem(DType dtype) {
  Problem problem;
  problem.layout =
      Layout::from_csr(2, 3, std::vector<std::int32_t>{0, 2, 3}, std::vector<std::int32_t>{0, 2, 1});
  problem.block = {32, 32};
  problem.batch = 32;
  problem.dtype = dtype;
  problem.out_dtype = dtype;
  return problem;
}

Config vector_config(std::int32_t tile_n) {
  Config config;
  config.variant = Variant::vector;
  config.tile_n = tile_n;
  config.warps = 1;
  return config;
}

Source source_for(const Problem& problem, const Target& target, std::int32_t tile_n = 32) {
  const Plan plan = {{problem.batch.bound(), vector_config(tile_n)}};
  return emit(problem, target, plan, {make_schedule(problem, target, plan[0].config, 32)});
}

bool holds(const std::vector<std::byte>& object, std::string_view bytes) {
  const std::string_view all(reinterpret_cast<const char*>(object.data()), object.size());
  return all.find(bytes) != std::string_view::npos;
}

TEST_CASE("every level is compiled for on any host, the same bytes each time") {
  for (const char* level : {"x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "generic"})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Target target{Target::Kind::cpu, level, 2};
      const Source source = source_for(small_problem(dtype), target);
      const auto object = compile_object(source.text, target);
      CHECK(holds(object,
                  "\x7f"
                  "ELF"));
      CHECK(object == compile_object(source_for(small_problem(dtype), target).text, target));
    }
}

TEST_CASE("only the level with AVX512-BF16 multiplies bf16 pairs in one instruction") {
  const Problem problem = small_problem(DType::bf16);
  CHECK(source_for(problem, {Target::Kind::cpu, "x86-64-v4-bf16", 2}).text.find("dpbf16ps.512") !=
        std::string::npos);
  CHECK(source_for(problem, {Target::Kind::cpu, "x86-64-v4", 2}).text.find("dpbf16ps") == std::string::npos);
}

TEST_CASE("no level calls into a library") {
  for (const char* level : {"x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "generic"})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const Operation operation : {Operation::forward, Operation::grad_input})
        for (const std::int32_t tile_n : {1, 32}) {
          const Target target{Target::Kind::cpu, level, 2};
          Problem problem = small_problem(dtype);
          problem.operation = operation;
          const auto object = compile_object(source_for(problem, target, tile_n).text, target);
          for (const char* symbol :
               {"fmaf", "memset", "memcpy", "__truncsfbf2", "__truncsfhf2", "__extendhfsf2"})
            CHECK_FALSE(holds(object, symbol));
        }
}

TEST_CASE("no activation calls into a library on any level") {
  for (const char* level : {"x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "generic"})
    for (const ActivationRow& row : activation_rows().subspan(1))
      for (const std::int32_t tile_n : {1, 32}) {
        const Target target{Target::Kind::cpu, level, 2};
        Problem problem = small_problem(DType::f16);
        problem.epilogue = {
            .scale = true, .bias = true, .activation = row.value, .glu = true, .residual = true};
        const auto object = compile_object(source_for(problem, target, tile_n).text, target);
        for (const char* symbol :
             {"fmaf", "exp", "erf", "tanh", "rint", "floor", "roundeven", "__truncsfhf2"})
          CHECK_FALSE(holds(object, symbol));
      }
}

TEST_CASE("no derivative of an activation calls into a library on any level") {
  for (const char* level : {"x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "generic"})
    for (const ActivationRow& row : activation_rows().subspan(1)) {
      const Target target{Target::Kind::cpu, level, 2};
      Problem problem = small_problem(DType::f32);
      problem.operation = Operation::grad_input;
      problem.derivative = row.value;
      const auto object = compile_object(source_for(problem, target).text, target);
      for (const char* symbol : {"fmaf", "exp", "erf", "tanh", "copysign"})
        CHECK_FALSE(holds(object, symbol));
    }
}

TEST_CASE("nothing around a product calls into a library on any level") {
  for (const char* level : {"x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "generic"})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const ActivationOrder order : {ActivationOrder::batch_major, ActivationOrder::feature_major}) {
        const Target target{Target::Kind::cpu, level, 2};
        Problem problem = small_problem(dtype);
        problem.operation = Operation::grad_input;
        problem.order = order;
        problem.block_scales = true;
        problem.derivative = Activation::gelu;
        problem.cut_in_features = 3 * 32 - 1;
        problem.cut_out_features = 2 * 32 - 1;
        const auto object = compile_object(source_for(problem, target).text, target);
        for (const char* symbol :
             {"fmaf", "memset", "memcpy", "exp", "__truncsfbf2", "__truncsfhf2", "__extendhfsf2"})
          CHECK_FALSE(holds(object, symbol));
      }
}

TEST_CASE("the emitted module says what it computes") {
  const Source source = source_for(small_problem(DType::f32), {Target::Kind::cpu, "x86-64-v3", 2});
  CHECK(source.text.find("3 blocks of 32x32") != std::string::npos);
  CHECK(source.text.find("define void @product(") != std::string::npos);
  REQUIRE(source.entries.size() == 1);
  CHECK(source.entries[0].passes == std::vector<std::string>{"pack", "product"});
}

TEST_CASE("a plan of several ranges gives each its passes, and tables, equal ones once") {
  Problem problem = small_problem(DType::f32);
  problem.batch = Batch::up_to(64);
  const Target target{Target::Kind::cpu, "x86-64-v3", 2};
  const Plan plan = {{8, vector_config(8)}, {64, vector_config(64)}};
  const Source source = emit(problem, target, plan,
                             {make_schedule(problem, target, plan[0].config, 8),
                              make_schedule(problem, target, plan[1].config, 64)});
  REQUIRE(source.entries.size() == 2);
  CHECK(source.entries[0].passes != source.entries[1].passes);
  CHECK(source.entries[1].tile_n == 64);
  CHECK(source.text.find("@columns_8 =") != std::string::npos);
  (void)compile_object(source.text, target);
}

TEST_CASE("a plan whose ranges read the weight in different orders is refused") {
  Problem problem = small_problem(DType::f32);
  problem.batch = Batch::up_to(64);
  const Target target{Target::Kind::cpu, "x86-64-v3", 2};
  const auto emit_for = [&](Config small, Config large) {
    const Plan plan = {{8, small}, {64, large}};
    (void)emit(problem, target, plan,
               {make_schedule(problem, target, small, 8), make_schedule(problem, target, large, 64)});
  };
  Config packed = vector_config(64);
  packed.packed = true;
  CHECK_THROWS_AS(emit_for(vector_config(8), packed), Error);
  Config small = vector_config(8);  // one vector of batch rows: tiles of more outputs
  small.packed = true;
  CHECK_THROWS_AS(emit_for(small, packed), Error);
  small.tile_out = packed.tile_out = 4;
  emit_for(small, packed);
}

TEST_CASE("text that is no module is refused with LLVM's reason and the text") {
  const Target target{Target::Kind::cpu, "x86-64-v3", 2};
  try {
    (void)compile_object("define nonsense", target);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::compile);
    CHECK(error.source() == "define nonsense");
    CHECK_FALSE(error.log().empty());
  }
}

TEST_CASE("configs that a level cannot run are refused") {
  const Problem problem = small_problem(DType::f32);
  const Target target{Target::Kind::cpu, "x86-64-v4", 2};
  const auto refuses = [&](const Config& config) {
    CHECK_THROWS_AS(validate(problem, target, config), Error);
  };
  validate(problem, target, vector_config(32));
  refuses(vector_config(8));
  refuses(vector_config(24));
  refuses(vector_config(256));
  Config config = vector_config(32);
  config.variant = Variant::simt;
  refuses(config);
  config = vector_config(32);
  config.tile_out = 33;
  refuses(config);
  config = vector_config(32);
  config.split = 0;
  refuses(config);
  config = vector_config(32);
  config.table = TableForm::unrolled;
  refuses(config);
  config = vector_config(32);
  config.rows = 2;
  refuses(config);
}

TEST_CASE("the host's level is one that is compiled for") {
  const std::string level = host_level();
  const Problem problem = small_problem(DType::f32);
  (void)compile_object(source_for(problem, {Target::Kind::cpu, level, 1}).text,
                       {Target::Kind::cpu, level, 1});
  CHECK(compiler_version().starts_with("LLVM 19."));
}

}  // namespace
}  // namespace sparsekiln::cpu
