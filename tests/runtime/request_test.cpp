#include "runtime/request.h"

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/patterns.h>

#include "compiler/build.h"
#include "runtime/build.h"
#include "tests/temporary_folder.h"

namespace sparsekiln {
namespace {

struct Asked {
  Problem problem;
  Target target{Target::Kind::cuda, "sm_90", 132};
  Plan plan{{64, {}}};
};

Asked sample() {
  Asked asked;
  asked.problem.layout = patterns::random(16, 16, 0.3, 1);
  asked.problem.batch = 64;
  return asked;
}

// What decides a Binary's bytes, counted. Who adds a field and comes here because this does not compile: what
// is no member of Computation, whose fields are a table, belongs into identity_of (or, of Options, into
// RequestHash and make_problem), and all of it into the lists of changes below.
struct KnownProblem : Computation {
  Layout layout;
  std::int64_t cut_in_features = 0;
  std::int64_t cut_out_features = 0;
};
static_assert(sizeof(Problem) == sizeof(KnownProblem));
struct KnownBatch {
  std::int64_t bound = 0;
  bool dynamic = false;
};
static_assert(sizeof(Batch) == sizeof(KnownBatch));

[[maybe_unused]] void count_fields(const Computation& computation, const Epilogue& epilogue,
                                   const BlockShape& block, const Target& target, const RangedConfig& ranged,
                                   const Config& config, const Options& options) {
  [[maybe_unused]] const auto& [operation, shape, batch, dtype, out_dtype, math, order, strict_absent, ends,
                                derivative, block_scales, bias_gradient, block_scale_gradient, alignment,
                                overlap_launches, convolution] = computation;
  [[maybe_unused]] const auto& [scale, bias, activation, glu, residual, edge_bias, lstm, keep, layer_norm,
                                multiply, add, row_scale] = epilogue;
  [[maybe_unused]] const auto& [out, in] = block;
  [[maybe_unused]] const auto& [kind, arch, workers] = target;
  [[maybe_unused]] const auto& [up_to, numbers] = ranged;
  [[maybe_unused]] const auto& [variant, tile_n, tile_out, stages, warps, split, rows, merge, split_saves,
                                in_flight, cluster, cluster_rows, panels, table, operand_a, packed] = config;
  [[maybe_unused]] const auto& [o1, o2, o3, o4, o5, o6, o7, o8, o9, o10, o11, o12, o13, o14, o15, o16, o17,
                                o18, o19, o20, o21, o22, o23, o24, o25, o26, o27] = options;
}

Digest key(const Asked& asked) { return identity_of(asked.problem, asked.target, asked.plan).key(); }

TEST_CASE("every field that decides the bytes changes the key") {
  const std::vector<std::function<void(Asked&)>> changes{
      [](Asked& a) { a.problem.operation = Operation::grad_input; },
      [](Asked& a) { a.problem.layout = patterns::random(16, 16, 0.3, 2); },
      [](Asked& a) { a.problem.layout = patterns::random(16, 17, 0.3, 1); },
      [](Asked& a) { a.problem.block = {32, 16}; },
      [](Asked& a) { a.problem.block = {16, 32}; },
      [](Asked& a) { a.problem.batch = 63; },
      [](Asked& a) { a.problem.batch = Batch::up_to(64); },
      [](Asked& a) { a.problem.dtype = DType::bf16; },
      [](Asked& a) { a.problem.out_dtype = DType::bf16; },
      [](Asked& a) { a.problem.math = Math::tf32; },
      [](Asked& a) { a.problem.order = ActivationOrder::feature_major; },
      [](Asked& a) { a.problem.strict_absent = true; },
      [](Asked& a) { a.problem.epilogue.scale = true; },
      [](Asked& a) { a.problem.epilogue.bias = true; },
      [](Asked& a) { a.problem.epilogue.lstm = true; },
      [](Asked& a) { a.problem.epilogue.keep = true; },
      [](Asked& a) { a.problem.epilogue.layer_norm = true; },
      [](Asked& a) { a.problem.epilogue.multiply = true; },
      [](Asked& a) { a.problem.epilogue.add = true; },
      [](Asked& a) { a.problem.epilogue.row_scale = true; },
      [](Asked& a) { a.problem.epilogue.activation = Activation::relu; },
      [](Asked& a) { a.problem.epilogue.activation = Activation::gelu; },
      [](Asked& a) { a.problem.epilogue.glu = true; },
      [](Asked& a) { a.problem.epilogue.residual = true; },
      [](Asked& a) { a.problem.epilogue.edge_bias = true; },
      [](Asked& a) { a.problem.derivative = Activation::relu; },
      [](Asked& a) { a.problem.block_scales = true; },
      [](Asked& a) { a.problem.bias_gradient = true; },
      [](Asked& a) { a.problem.block_scale_gradient = true; },
      [](Asked& a) { a.problem.alignment = 8; },
      [](Asked& a) { a.problem.overlap_launches = true; },
      [](Asked& a) { a.problem.convolution = parse_convolution("kernel=3 input=9"); },
      [](Asked& a) { a.problem.convolution = parse_convolution("kernel=3 input=9x9"); },
      [](Asked& a) { a.problem.convolution = parse_convolution("kernel=3 transposed input=9"); },
      [](Asked& a) { a.problem.convolution = parse_convolution("kernel=3 input=9 taps=101"); },
      [](Asked& a) { a.problem.convolution = parse_convolution("kernel=3 input=9 taps=110"); },
      [](Asked& a) { a.problem.cut_in_features = 500; },
      [](Asked& a) { a.problem.cut_out_features = 500; },
      [](Asked& a) { a.target.arch = "sm_90a"; },
      [](Asked& a) { a.target.workers = 131; },
      [](Asked& a) { a.plan[0].up_to = 65; },
      [](Asked& a) { a.plan[0].config.variant = Variant::vector; },
      [](Asked& a) { a.plan[0].config.tile_n = 32; },
      [](Asked& a) { a.plan[0].config.tile_out = 3; },
      [](Asked& a) { a.plan[0].config.stages = 2; },
      [](Asked& a) { a.plan[0].config.warps = 8; },
      [](Asked& a) { a.plan[0].config.split = 2; },
      [](Asked& a) { a.plan[0].config.rows = 2; },
      [](Asked& a) { a.plan[0].config.merge = 2; },
      [](Asked& a) { a.plan[0].config.split_saves = 2; },
      [](Asked& a) { a.plan[0].config.in_flight = 2; },
      [](Asked& a) { a.plan[0].config.cluster = 2; },
      [](Asked& a) { a.plan[0].config.table = TableForm::global; },
      [](Asked& a) { a.plan[0].config.knobs[0] = 1; },
      [](Asked& a) { a.plan[0].config.operand_a = OperandA::w; },
      [](Asked& a) { a.plan[0].config.packed = true; },
      [](Asked& a) { a.plan.push_back({128, {}}); },
  };
  std::set<Digest> keys{key(sample())};
  for (std::size_t change = 0; change < changes.size(); ++change) {
    CAPTURE(change);
    Asked asked = sample();
    changes[change](asked);
    CHECK(keys.insert(key(asked)).second);
  }
}

/// The fields and values that decide a Binary besides its layout, one a line.
std::string stated(const Problem& problem) {
  std::string text;
  for (const auto& [field, value] : stated_fields(problem, {Target::Kind::cuda, "sm_90", 132}, {}))
    text += field + "=" + value + "\n";
  return text;
}

TEST_CASE("identities spell all that a problem states") {
  CHECK(stated({}) ==
        "operation=forward\nblock=32x32\nbatch=1\ndtype=f32\nout_dtype=f32\nmath=ieee\n"
        "order=batch-major\nstrict_absent=no\nepilogue=none\nderivative=none\ngates=no\n"
        "bias_gradient=no\ngate_gradient=no\nalignment=16\noverlap_launches=no\ntarget=sm_90:132\n"
        "plan=\n");
  Problem gradient;
  gradient.operation = Operation::grad_weight;
  gradient.block = {8, 64};
  gradient.batch = Batch::up_to(8192);
  gradient.math = Math::tf32;
  gradient.derivative = Activation::gelu_tanh;
  gradient.block_scales = gradient.bias_gradient = gradient.block_scale_gradient = true;
  gradient.alignment = 4;
  CHECK(stated(gradient) ==
        "operation=grad_weight\nblock=8x64\nbatch=up-to:8192\ndtype=f32\nout_dtype=f32\nmath=tf32\n"
        "order=batch-major\nstrict_absent=no\nepilogue=none\nderivative=gelu_tanh\ngates=yes\n"
        "bias_gradient=yes\ngate_gradient=yes\nalignment=4\noverlap_launches=no\ntarget=sm_90:132\n"
        "plan=\n");
  Problem pair;
  pair.batch = 64;
  pair.dtype = DType::bf16;
  pair.order = ActivationOrder::feature_major;
  pair.strict_absent = true;
  pair.epilogue = parse_epilogue("scale+bias+silu+glu+residual");
  CHECK(stated(pair) ==
        "operation=forward\nblock=32x32\nbatch=64\ndtype=bf16\nout_dtype=f32\nmath=ieee\n"
        "order=feature-major\nstrict_absent=yes\nepilogue=scale+bias+silu+glu+residual\n"
        "derivative=none\ngates=no\nbias_gradient=no\ngate_gradient=no\nalignment=16\n"
        "overlap_launches=no\ntarget=sm_90:132\nplan=\n");
  Problem half;
  half.operation = Operation::grad_input;
  half.dtype = half.out_dtype = DType::f16;
  half.epilogue = parse_epilogue("scale");
  CHECK(stated(half) ==
        "operation=grad_input\nblock=32x32\nbatch=1\ndtype=f16\nout_dtype=f16\nmath=ieee\n"
        "order=batch-major\nstrict_absent=no\nepilogue=scale\nderivative=none\ngates=no\n"
        "bias_gradient=no\ngate_gradient=no\nalignment=16\noverlap_launches=no\ntarget=sm_90:132\n"
        "plan=\n");
}

TEST_CASE("identities of linear layers say nothing of convolutions, and the others say theirs") {
  Problem problem;
  problem.convolution = parse_convolution("input=8x8 kernel=3 padding=1");
  const std::string with = stated(problem);
  const std::string said = "convolution=kernel=3x3 padding=1x1 input=8x8\n";
  const std::size_t at = with.find(said);
  REQUIRE(at != std::string::npos);
  CHECK(with.substr(0, at) + with.substr(at + said.size()) == stated({}));
}

TEST_CASE("with attached tables the layout has no part in the key, and all else has") {
  Asked asked = sample();
  asked.plan[0].config.table = TableForm::attached;
  const Digest base = key(asked);
  CHECK_FALSE(base == key(sample()));
  asked.problem.layout = patterns::random(5, 70, 0.9, 2);
  CHECK(key(asked) == base);
  asked.problem.block = {16, 32};
  CHECK_FALSE(key(asked) == base);
}

TEST_CASE(
    "code with attached tables is of its features where these are cut, on CUDA targets; on the cpu it serves "
    "all") {
  Asked asked = sample();
  asked.plan[0].config.table = TableForm::attached;
  asked.problem.layout = patterns::random(5, 7, 0.9, 2);
  const auto cut = [&](std::int64_t in, std::int64_t out) {
    asked.problem.cut_in_features = in;
    asked.problem.cut_out_features = out;
    return key(asked);
  };
  const std::int64_t in = 7 * std::int64_t{asked.problem.block.in};
  const std::int64_t out = 5 * std::int64_t{asked.problem.block.out};
  for (const char* const target : {"sm_90", "x86-64-v3:2"}) {
    asked.target = Target::parse(target);
    const bool anywhere = std::string_view(target) != "sm_90";
    CHECK((cut(in - 1, 0) == cut(in - 2, 0)) == anywhere);
    CHECK((cut(0, out - 1) == cut(0, out - 3)) == anywhere);
    CHECK_FALSE(cut(in - 1, 0) == cut(0, out - 1));
    CHECK_FALSE(cut(in - 1, 0) == cut(0, 0));
  }
}

TEST_CASE("the same request has the same key") { CHECK(key(sample()) == key(sample())); }

TEST_CASE("the compiler's digest is a part of the key") {
  const Asked asked = sample();
  const cache::Identity identity = identity_of(asked.problem, asked.target, asked.plan);
  cache::Identity other;
  bool found = false;
  for (const auto& [field, value] : identity.fields()) {
    const bool compiler = field == "compiler";
    if (compiler) CHECK(value == compiler_digest());
    found = found || compiler;
    other.add(field, compiler ? "another" : value);
  }
  CHECK(found);
  CHECK_FALSE(other.key() == identity.key());
}

Digest key(const Options& options) {
  const BuildJob job = job_of(patterns::random(16, 16, 0.3, 1), options);
  return identity_of(job.problem, job.target, job.plan).key();
}

Options sample_options() {
  return {.block = {32, 32}, .batch = 64, .dtype = DType::bf16, .target = "sm_90:132"};
}

TEST_CASE("every option that decides the bytes changes the key") {
  using Change = std::function<void(Options&)>;
  const auto check = [](const Options& base, const std::vector<Change>& changes) {
    std::set<Digest> keys{key(base)};
    for (std::size_t change = 0; change < changes.size(); ++change) {
      CAPTURE(change);
      Options options = base;
      changes[change](options);
      CHECK(keys.insert(key(options)).second);
    }
  };
  Config pinned = job_of(patterns::random(16, 16, 0.3, 1), sample_options()).plan.front().config;
  pinned.split += 1;
  check(
      sample_options(),
      {[](Options& o) { o.block = {16, 32}; }, [](Options& o) { o.batch = 63; },
       [](Options& o) { o.batch = Batch::up_to(64); }, [](Options& o) { o.dtype = DType::f16; },
       [](Options& o) { o.out_dtype = DType::f32; }, [](Options& o) { o.operation = Operation::grad_input; },
       [](Options& o) { o.order = ActivationOrder::feature_major; },
       [](Options& o) { o.strict_absent = true; }, [](Options& o) { o.epilogue.bias = true; },
       [](Options& o) { o.block_scales = true; }, [](Options& o) { o.in_features = 500; },
       [](Options& o) { o.out_features = 500; }, [](Options& o) { o.alignment = 4; },
       [](Options& o) { o.target = "sm_80:108"; },
       [](Options& o) { o.specialization = Specialization::attached; },
       [&](Options& o) { o.config = pinned; }});
  Options single = sample_options();
  single.dtype = DType::f32;
  check(single, {[](Options& o) { o.math = Math::tf32; }});
  Options gradient = sample_options();
  gradient.operation = Operation::grad_weight;
  check(gradient,
        {[](Options& o) { o.derivative = Activation::relu; }, [](Options& o) { o.bias_gradient = true; },
         [](Options& o) { o.block_scales = o.block_scale_gradient = true; },
         [](Options& o) { o.block_scales = true; }});
}

TEST_CASE("paths, the environment and the working folder do not change the key, and do not stand in it") {
  const Digest base = key(sample_options());
  Options elsewhere = sample_options();
  elsewhere.cache_dir = "elsewhere";
  elsewhere.packs = {"elsewhere.pack"};
  CHECK(key(elsewhere) == base);

  const test::TemporaryFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  for (const char* variable :
       {"SPARSEKILN_CACHE_DIR", "XDG_CACHE_HOME", "CUDA_HOME", "SPARSEKILN_NOT_READ"}) {
    CAPTURE(variable);
    const char* const old = std::getenv(variable);
    const std::string kept = old == nullptr ? "" : old;
    ::setenv(variable, folder.path().c_str(), 1);
    CHECK(key(sample_options()) == base);
    old == nullptr ? ::unsetenv(variable) : ::setenv(variable, kept.c_str(), 1);
  }
  std::filesystem::current_path(before);
  const Asked asked = sample();
  CHECK(identity_of(asked.problem, asked.target, asked.plan).canonical().find('/') == std::string::npos);
}

TEST_CASE("requests that differ in one option are different rows of the table") {
  const Request base{patterns::random(16, 16, 0.3, 1).digest(), {}, nullptr};
  const std::vector<std::function<void(Request&)>> changes{
      [](Request& r) { r.layout = patterns::random(16, 16, 0.3, 2).digest(); },
      [](Request& r) { r.options.block = {8, 32}; },
      [](Request& r) { r.options.batch = Batch::up_to(1); },
      [](Request& r) { r.options.dtype = DType::bf16; },
      [](Request& r) { r.options.out_dtype = DType::f32; },
      [](Request& r) { r.options.operation = Operation::grad_input; },
      [](Request& r) { r.options.math = Math::tf32; },
      [](Request& r) { r.options.order = ActivationOrder::feature_major; },
      [](Request& r) { r.options.strict_absent = true; },
      [](Request& r) { r.options.epilogue.scale = true; },
      [](Request& r) { r.options.epilogue.bias = true; },
      [](Request& r) { r.options.epilogue.activation = Activation::relu; },
      [](Request& r) { r.options.epilogue.activation = Activation::gelu; },
      [](Request& r) { r.options.epilogue.glu = true; },
      [](Request& r) { r.options.epilogue.residual = true; },
      [](Request& r) { r.options.epilogue.edge_bias = true; },
      [](Request& r) { r.options.derivative = Activation::relu; },
      [](Request& r) { r.options.block_scales = true; },
      [](Request& r) { r.options.bias_gradient = true; },
      [](Request& r) { r.options.block_scale_gradient = true; },
      [](Request& r) { r.options.alignment = 8; },
      [](Request& r) { r.options.convolution = parse_convolution("kernel=3 input=9"); },
      [](Request& r) { r.options.in_features = 500; },
      [](Request& r) { r.options.out_features = 500; },
      [](Request& r) { r.options.target = "cpu"; },
      [](Request& r) { r.options.config = Config{}; },
      [](Request& r) { r.options.specialization = Specialization::attached; },
      [](Request& r) { r.options.specialization = Specialization::tiered; },
      [](Request& r) { r.options.cache_dir = "elsewhere"; },
      [](Request& r) { r.options.packs = {"a.pack"}; },
      [](Request& r) { r.options.packs = {"b.pack"}; },
      [](Request& r) { r.options.packs = {"a.pack", "b.pack"}; },
      [](Request& r) { r.options.require = Require::prebuilt; },
      [](Request& r) { r.context = &r; },
  };
  CHECK(base == Request(base));
  CHECK(RequestHash{}(base) == RequestHash{}(Request(base)));
  for (std::size_t change = 0; change < changes.size(); ++change) {
    CAPTURE(change);
    Request other = base;
    changes[change](other);
    CHECK_FALSE(other == base);
    CHECK(RequestHash{}(other) != RequestHash{}(base));
  }
}

}  // namespace
}  // namespace sparsekiln
