#include <sparsekiln/c.h>
#include <sparsekiln/printable.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/sparsekiln.h>

#include "compiler/activation.h"
#include "compiler/computation_fields.h"
#include "compiler/edge_runs.h"
#include "compiler/element.h"
#include "runtime/c_operands.h"
#include "runtime/c_structs.h"
#include "runtime/warnings.h"

using sparsekiln::Error;
using sparsekiln::ErrorKind;
using sparsekiln::Layout;

struct sk_layout {
  Layout layout;
  std::string digest;
};

/// The text of each of computation_fields().
using FieldTexts = std::vector<std::string>;

struct sk_kernel {
  explicit sk_kernel(sparsekiln::Kernel of) : kernel(std::move(of)) {
    FieldTexts texts;
    for (const sparsekiln::ComputationField& field : sparsekiln::computation_fields())
      texts.push_back(field.text(kernel.binary().operands));
    fields = std::make_shared<const FieldTexts>(std::move(texts));
  }

  sparsekiln::Kernel kernel;
  std::shared_ptr<const FieldTexts> fields;  // no relayout changes them
  std::string target, config, key;           // as they were last described
};

namespace {

struct Failure {
  std::string message;
  std::string log;
};
thread_local Failure last_failure;

sk_status status_of(ErrorKind kind) { return static_cast<sk_status>(static_cast<int>(kind) + 1); }
static_assert(static_cast<int>(ErrorKind::invalid_argument) + 1 == SK_INVALID_ARGUMENT);
static_assert(static_cast<int>(ErrorKind::internal) + 1 == SK_INTERNAL);

sk_status failed(sk_status status, const char* message, const std::string& log = {}) noexcept {
  try {
    last_failure = {message, log};
  } catch (const std::bad_alloc&) {
    last_failure = {};
  }
  return status;
}

/// Runs `body`; what it throws becomes the status and the message.
template <typename Body>
sk_status guarded(const Body& body) noexcept {
  try {
    body();
    return SK_OK;
  } catch (const Error& error) {
    return failed(status_of(error.kind()), error.what(), error.log());
  } catch (const std::bad_alloc&) {
    return failed(SK_INTERNAL, "out of memory");
  } catch (const std::exception& error) {
    return failed(SK_INTERNAL, error.what());
  } catch (...) {
    return failed(SK_INTERNAL, "an exception of no known type");
  }
}

template <typename T>
T& given(T* object, const char* name) {
  if (object == nullptr)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} is null; an object of this library would work", name));
  return *object;
}

/// Bytes of the first version of each struct: up to the end of the member that was its last.
template <typename Struct>
constexpr std::size_t kFirstSize = 0;
template <>
constexpr std::size_t kFirstSize<sk_pattern> =
    offsetof(sk_pattern, random_blocks) + sizeof(sk_pattern::random_blocks);
template <>
constexpr std::size_t kFirstSize<sk_options> = offsetof(sk_options, require) + sizeof(sk_options::require);
template <>
constexpr std::size_t kFirstSize<sk_operands> = offsetof(sk_operands, stream) + sizeof(sk_operands::stream);

/// A caller's struct, with the defaults that its init function sets.
template <typename Struct>
Struct taken(const Struct* object, void (*init)(Struct*, std::size_t), const char* name) {
  Struct defaults;
  init(&defaults, sizeof(defaults));
  return sparsekiln::read_struct(&given(object, name), defaults, kFirstSize<Struct>, name);
}

/// Writes a view as large as the caller's.
template <typename Struct>
void give_view(Struct* view, const Struct& value) {
  sparsekiln::write_struct(view, sparsekiln::size_to_write(&given(view, "view"), "view"), value);
}

const FieldTexts& usual_texts() {
  static const FieldTexts texts = [] {
    FieldTexts all;
    for (const sparsekiln::ComputationField& field : sparsekiln::computation_fields())
      all.push_back(field.usual());
    return all;
  }();
  return texts;
}

/// The text of the field of that name.
const char* text_of(const FieldTexts& texts, std::string_view name) {
  const auto index = &sparsekiln::computation_field(name) - sparsekiln::computation_fields().data();
  return texts[static_cast<std::size_t>(index)].c_str();
}

/// Members of sk_options that stand for a field. Those that have been added since have none.
struct TextMember {
  std::string_view field;
  const char* sk_options::* text;
};
constexpr std::array kTextMembers{
    TextMember{"operation", &sk_options::operation}, TextMember{"batch", &sk_options::batch},
    TextMember{"dtype", &sk_options::dtype},         TextMember{"out_dtype", &sk_options::out_dtype},
    TextMember{"math", &sk_options::math},           TextMember{"order", &sk_options::activation_order},
    TextMember{"epilogue", &sk_options::epilogue},   TextMember{"derivative", &sk_options::derivative},
};
struct FlagMember {
  std::string_view field;
  int sk_options::* set;
};
constexpr std::array kFlagMembers{FlagMember{"strict_absent", &sk_options::strict_absent},
                                  FlagMember{"gates", &sk_options::gates},
                                  FlagMember{"bias_gradient", &sk_options::bias_gradient},
                                  FlagMember{"gate_gradient", &sk_options::gate_gradient}};

/// What decides the computation, of `from`.
void read_fields(const sk_options& from, sparsekiln::Options& options) {
  using sparsekiln::computation_field;
  options.block = {from.block_out, from.block_in};
  options.alignment = from.alignment;
  for (const auto& [field, member] : kTextMembers) {
    const bool left_out = from.*member == nullptr && !computation_field(field).follows.empty();
    if (!left_out) computation_field(field).read(options, &given(from.*member, field.data()));
  }
  for (const auto& [field, member] : kFlagMembers)
    computation_field(field).read(options, from.*member != 0 ? "yes" : "no");
  if (from.fields == nullptr && from.field_count > 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("options: fields is null and field_count is {}; an array of so many fields, or a "
                            "field_count of 0, would work",
                            from.field_count));
  const std::span<const sk_field> named(from.fields, from.field_count);
  for (const auto& [name, text] : named) {
    const std::string_view field = &given(name, "name of a field");
    computation_field(field).read(options, &given(text, "text of a field"));
  }
}

sk_layout* handle(Layout layout) {
  std::string digest = layout.digest().hex();
  return new sk_layout{std::move(layout), std::move(digest)};
}

std::vector<Layout> layouts_of(const sk_layout* const* handles, size_t count, const char* all,
                               const char* one) {
  std::vector<Layout> layouts;
  for (size_t i = 0; i < count; ++i) layouts.push_back(given((&given(handles, all))[i], one).layout);
  return layouts;
}

Layout pattern(std::string_view name, const sk_pattern& p) {
  using namespace sparsekiln::patterns;
  if (name == "random") return random(p.rows, p.cols, p.density, p.seed);
  if (name == "balanced_random") return balanced_random(p.rows, p.cols, p.density, p.seed, p.diagonal != 0);
  if (name == "block_diagonal") return block_diagonal(p.rows, p.cols, p.groups);
  if (name == "banded") return banded(p.rows, p.cols, p.half_width);
  if (name == "watts_strogatz")
    return watts_strogatz(p.rows, p.cols, p.density, p.rewire, p.seed, p.diagonal != 0);
  if (name == "balanced_watts_strogatz")
    return balanced_watts_strogatz(p.rows, p.cols, p.density, p.rewire, p.seed, p.diagonal != 0);
  if (name == "barabasi_albert")
    return barabasi_albert(p.extent, p.edges, p.diagonal != 0, p.seed, p.extra_edges);
  if (name == "butterfly") return butterfly(p.extent);
  if (name == "causal") return causal(p.extent);
  if (name == "strided") return strided(p.extent, p.stride);
  if (name == "longformer") return longformer(p.extent, p.window, p.global_blocks);
  if (name == "bigbird") return bigbird(p.extent, p.window, p.global_blocks, p.random_blocks, p.seed);
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("there is no pattern '{}'; patterns.h has random, balanced_random, block_diagonal, banded, "
                  "watts_strogatz, balanced_watts_strogatz, barabasi_albert, butterfly, causal, strided, "
                  "longformer and bigbird",
                  sparsekiln::printable(name)));
}

/// Calls back into C.
class Watch final : public sparsekiln::TuningWatch {
 public:
  explicit Watch(const sk_options& options) : call_(options.tuning_watch), context_(options.tuning_context) {}
  bool goes_on(const sparsekiln::TuningProgress& now) override {
    return call_(context_, now.settled, now.candidates, now.best_us, now.seconds) != 0;
  }

 private:
  sk_tuning_watch call_;
  void* context_;
};

sparsekiln::Tuning parse_tuning(std::string_view text) {
  for (const auto tuning : {sparsekiln::Tuning::recorded, sparsekiln::Tuning::now})
    if (text == name(tuning)) return tuning;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("tuning '{}': 'recorded' or 'now'", sparsekiln::printable(text)));
}

sparsekiln::Options options_of(const sk_options& from) {
  using namespace sparsekiln;
  Options options;
  read_fields(from, options);
  options.in_features = from.in_features;
  options.out_features = from.out_features;
  options.target = &given(from.target, "target");
  if (from.config != nullptr) options.config = parse_config(from.config);
  options.tuning = parse_tuning(&given(from.tuning, "tuning"));
  options.tuning_seconds = from.tuning_seconds;
  options.specialization = specialization_of(from.attached != 0, from.tiered != 0);
  options.cache_dir = &given(from.cache_dir, "cache_dir");
  for (const char* const* pack = from.packs; pack != nullptr && *pack != nullptr; ++pack)
    options.packs.emplace_back(*pack);
  options.require = parse_require(&given(from.require, "require"));
  return options;
}

}  // namespace

const char* sk_error_message(void) { return last_failure.message.c_str(); }
const char* sk_error_log(void) { return last_failure.log.c_str(); }
const char* sk_version(void) { return SPARSEKILN_VERSION; }
int sk_interface_version(void) { return SK_INTERFACE_VERSION; }

const char* sk_take_warning(void) {
  thread_local std::string taken;
  try {
    std::optional<std::string> oldest = sparsekiln::take_warning();
    if (!oldest) return nullptr;
    taken = std::move(*oldest);
    return taken.c_str();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

size_t sk_element_type_count(void) { return sparsekiln::elements().size(); }

sk_status sk_element_type_describe(size_t index, sk_element_type* view) {
  return guarded([&] {
    const auto types = sparsekiln::elements();
    if (index >= types.size())
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("element type {}: there are {}, counted from 0", index, types.size()));
    const sparsekiln::Element& type = types[index];
    const sparsekiln::Element& sums = sparsekiln::element(type.arithmetic);
    // The texts of the rows are literals, which end with 0.
    give_view(view, {.size = 0,
                     .name = type.name.data(),
                     .array_name = type.array_name.data(),
                     .sum_name = sums.name.data(),
                     .sum_array_name = sums.array_name.data(),
                     .dlpack_code = type.dlpack.code,
                     .dlpack_bits = type.dlpack.bits,
                     .on_cuda = type.cuda.output.empty() && type.cuda.product.empty() ? 0 : 1,
                     .forward_only = type.forward_only ? 1 : 0});
  });
}

const char* sk_activation_name(size_t number) {
  const auto rows = sparsekiln::activation_rows().subspan(1);
  return number < rows.size() ? rows[number].name.data() : nullptr;
}

int sk_activation_takes_result(size_t number) {
  const auto rows = sparsekiln::activation_rows().subspan(1);
  return number < rows.size() && rows[number].derivative_from_result ? 1 : 0;
}

sk_status sk_layout_from_csr(int64_t rows, int64_t cols, const int32_t* crow, const int32_t* col,
                             sk_layout** layout) {
  return guarded([&] {
    const auto whole = static_cast<std::size_t>(std::clamp<std::int64_t>(rows, 0, Layout::kMaxExtent));
    const std::span<const std::int32_t> rows_begin(&given(crow, "crow"), whole + 1);
    const auto blocks = static_cast<std::size_t>(std::max(rows_begin.back(), 0));
    given(layout, "layout") =
        handle(Layout::from_csr(rows, cols, rows_begin, {col, col == nullptr ? 0 : blocks}));
  });
}

sk_status sk_layout_from_mask(int64_t rows, int64_t cols, const uint8_t* mask, sk_layout** layout) {
  return guarded([&] {
    const bool in_range = rows >= 0 && cols >= 0 && rows <= Layout::kMaxExtent && cols <= Layout::kMaxExtent;
    const std::size_t cells = in_range && mask != nullptr ? static_cast<std::size_t>(rows * cols) : 0;
    given(layout, "layout") = handle(Layout::from_mask(rows, cols, {mask, cells}));
  });
}

sk_status sk_layout_load(const char* file, sk_layout** layout) {
  return guarded([&] { given(layout, "layout") = handle(Layout::load(&given(file, "file"))); });
}

sk_status sk_layout_save(const sk_layout* layout, const char* file) {
  return guarded([&] { given(layout, "layout").layout.save(&given(file, "file")); });
}

sk_status sk_layout_transposed(const sk_layout* layout, sk_layout** transposed) {
  return guarded(
      [&] { given(transposed, "transposed") = handle(given(layout, "layout").layout.transposed()); });
}

sk_status sk_layout_diagonal(const sk_layout* const* parts, size_t count, sk_layout** layout) {
  return guarded([&] {
    given(layout, "layout") = handle(Layout::diagonal(layouts_of(parts, count, "parts", "a part")));
  });
}

sk_status sk_layout_mixing(const sk_layout* const* layers, size_t count, sk_mixing* after) {
  return guarded([&] {
    const std::vector<Layout> layouts = layouts_of(layers, count, "layers", "a layer");
    sk_mixing* next = count > 0 ? &given(after, "after") : nullptr;
    for (const sparsekiln::patterns::Mixing& one : sparsekiln::patterns::mixing(layouts))
      *next++ = {.minimum = one.minimum,
                 .maximum = one.maximum,
                 .median = one.median,
                 .mean = one.mean,
                 .share = one.share};
  });
}

void sk_layout_free(sk_layout* layout) { delete layout; }

// The parentheses keep the macro of this name out: here and below.
void(sk_pattern_init)(sk_pattern* pattern) { sk_pattern_init_sized(pattern, kFirstSize<sk_pattern>); }

void sk_pattern_init_sized(sk_pattern* pattern, size_t size) {
  sparsekiln::write_struct(pattern, size, sk_pattern{});
}

sk_status sk_layout_pattern(const char* name, const sk_pattern* parameters, sk_layout** layout) {
  return guarded([&] {
    given(layout, "layout") =
        handle(pattern(&given(name, "name"), taken(parameters, sk_pattern_init_sized, "pattern")));
  });
}

sk_status sk_layout_describe(const sk_layout* layout, sk_layout_view* view) {
  return guarded([&] {
    const Layout& grid = given(layout, "layout").layout;
    give_view(view, {.size = 0,
                     .rows = grid.rows(),
                     .cols = grid.cols(),
                     .blocks = grid.blocks(),
                     .density = grid.statistics().density,
                     .crow = grid.crow().data(),
                     .col = grid.col().data(),
                     .digest = layout->digest.c_str()});
  });
}

size_t sk_field_count(void) { return sparsekiln::computation_fields().size(); }

sk_status sk_field_describe(size_t index, sk_field_view* view) {
  return guarded([&] {
    const auto fields = sparsekiln::computation_fields();
    if (index >= fields.size())
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("field {}: there are {}, counted from 0", index, fields.size()));
    const sparsekiln::ComputationField& field = fields[index];
    give_view(view, {.size = 0,
                     .name = field.name.data(),
                     .argument = field.argument.data(),
                     .option = field.option.data(),
                     .usual = usual_texts()[index].c_str(),
                     .help = field.help.data(),
                     .is_flag = field.kind == sparsekiln::ComputationField::Kind::flag});
  });
}

void(sk_options_init)(sk_options* options) { sk_options_init_sized(options, kFirstSize<sk_options>); }

void sk_options_init_sized(sk_options* options, size_t size) {
  const sparsekiln::Options defaults;
  sk_options usual{};
  usual.block_out = defaults.block.out;
  usual.block_in = defaults.block.in;
  for (const auto& [field, member] : kTextMembers)
    if (sparsekiln::computation_field(field).follows.empty()) usual.*member = text_of(usual_texts(), field);
  usual.alignment = defaults.alignment;
  usual.target = "auto";
  usual.tuning = "recorded";
  usual.tuning_seconds = defaults.tuning_seconds;
  usual.cache_dir = "";
  usual.require = "anything";
  sparsekiln::write_struct(options, size, usual);
}

sk_status sk_compile(const sk_layout* layout, const sk_options* options, sk_kernel** kernel) {
  return guarded([&] {
    const sk_options given_options = taken(options, sk_options_init_sized, "options");
    sparsekiln::Options wishes = options_of(given_options);
    Watch watch(given_options);
    sk_kernel*& made = given(kernel, "kernel");
    if (given_options.tuning_watch != nullptr) wishes.tuning_watch = &watch;
    made = new sk_kernel(sparsekiln::compile(given(layout, "layout").layout, wishes));
  });
}

sk_status sk_edge_situations(const char* convolution, int32_t* count, int64_t* positions,
                             int32_t* of_position) {
  return guarded([&] {
    const auto geometry = sparsekiln::parse_convolution(&given(convolution, "convolution"));
    const auto runs = sparsekiln::checked_edge_runs(geometry);
    given(count, "count") = runs.count;
    given(positions, "positions") = geometry.output_positions();
    if (of_position != nullptr) sparsekiln::write_edge_situations(geometry, runs, of_position);
  });
}

int32_t sk_threads(void) { return sparsekiln::threads(); }
int32_t sk_stated_threads(void) { return sparsekiln::stated_threads(); }
sk_status sk_set_threads(int32_t threads) {
  return guarded([&] { sparsekiln::set_threads(threads); });
}
void sk_set_team(sk_team team) { sparsekiln::set_team(team); }

sk_status sk_kernel_copy(const sk_kernel* kernel, sk_kernel** copy) {
  return guarded([&] { given(copy, "copy") = new sk_kernel(given(kernel, "kernel")); });
}

void sk_kernel_free(sk_kernel* kernel) { delete kernel; }

void(sk_operands_init)(sk_operands* operands) { sk_operands_init_sized(operands, kFirstSize<sk_operands>); }

void sk_operands_init_sized(sk_operands* operands, size_t size) {
  sk_operands none{};
  none.alpha = 1;
  none.epsilon = sparsekiln::Operands{}.epsilon;
  sparsekiln::write_struct(operands, size, none);
}

sk_status sk_kernel_run(const sk_kernel* kernel, const sk_operands* operands) {
  return guarded([&] {
    const sk_operands from = taken(operands, sk_operands_init_sized, "operands");
    using sparsekiln::view_of;
    given(kernel, "kernel")
        .kernel({.x = view_of("x", from.x),
                 .w = view_of("w", from.w),
                 .y = view_of("y", from.y),
                 .dy = view_of("dy", from.dy),
                 .dx = view_of("dx", from.dx),
                 .dw = view_of("dw", from.dw),
                 .v = view_of("v", from.v),
                 .bias = view_of("bias", from.bias),
                 .v_bias = view_of("v_bias", from.v_bias),
                 .residual = view_of("residual", from.residual),
                 .projection = view_of("projection", from.projection),
                 .activations = view_of("activations", from.activations),
                 .c_before = view_of("c_before", from.c_before),
                 .c = view_of("c", from.c),
                 .dc = view_of("dc", from.dc),
                 .dc_before = view_of("dc_before", from.dc_before),
                 .gain = view_of("gain", from.gain),
                 .sums = view_of("sums", from.sums),
                 .statistics = view_of("statistics", from.statistics),
                 .multiplier = view_of("multiplier", from.multiplier),
                 .addend = view_of("addend", from.addend),
                 .dmultiplier = view_of("dmultiplier", from.dmultiplier),
                 .daddend = view_of("daddend", from.daddend),
                 .dnorm = view_of("dnorm", from.dnorm),
                 .edge_gain = view_of("edge_gain", from.edge_gain),
                 .edge_bias = view_of("edge_bias", from.edge_bias),
                 .row_scale = view_of("row_scale", from.row_scale),
                 .v_row_scale = view_of("v_row_scale", from.v_row_scale),
                 .z = view_of("z", from.z),
                 .gates = view_of("gates", from.gates),
                 .dbias = view_of("dbias", from.dbias),
                 .dgates = view_of("dgates", from.dgates),
                 .alpha = from.alpha64 == nullptr ? from.alpha : *from.alpha64,
                 .beta = from.beta64 == nullptr ? from.beta : *from.beta64,
                 .epsilon = from.epsilon,
                 .workspace = from.workspace,
                 .workspace_size = from.workspace_size,
                 .threads = from.threads,
                 .stream = from.stream});
  });
}

sk_status sk_kernel_workspace_bytes(const sk_kernel* kernel, int64_t n, int64_t* bytes) {
  return guarded([&] { given(bytes, "bytes") = given(kernel, "kernel").kernel.workspace_bytes(n); });
}

sk_status sk_kernel_workspace_counter_bytes(const sk_kernel* kernel, int64_t* bytes) {
  return guarded([&] { given(bytes, "bytes") = given(kernel, "kernel").kernel.workspace_counter_bytes(); });
}

sk_status sk_kernel_relayout(sk_kernel* kernel, const sk_layout* layout) {
  return guarded([&] { given(kernel, "kernel").kernel.relayout(given(layout, "layout").layout); });
}

sk_status sk_kernel_wait(const sk_kernel* kernel) {
  return guarded([&] { given(kernel, "kernel").kernel.wait(); });
}

sk_status sk_kernel_describe(sk_kernel* kernel, sk_kernel_view* view) {
  return guarded([&] {
    sk_kernel& described = given(kernel, "kernel");
    const sparsekiln::Binary& binary = described.kernel.binary();
    const sparsekiln::OperandContract& operands = binary.operands;
    const auto text = [&](std::string_view field) { return text_of(*described.fields, field); };
    described.target = binary.target.to_string();
    described.config = to_string(binary.plan);
    described.key = described.kernel.key().hex();
    give_view(view, {.size = 0,
                     .operation = text("operation"),
                     .dtype = text("dtype"),
                     .out_dtype = text("out_dtype"),
                     .activation_order = text("order"),
                     .in_features = operands.in_features,
                     .out_features = operands.out_features,
                     .blocks = operands.blocks,
                     .block_out = operands.block.out,
                     .block_in = operands.block.in,
                     .batch = operands.batch.bound(),
                     .epilogue = text("epilogue"),
                     .derivative = text("derivative"),
                     .gates = operands.gates,
                     .bias_gradient = operands.bias_gradient,
                     .gate_gradient = operands.gate_gradient,
                     .target = described.target.c_str(),
                     .config = described.config.c_str(),
                     .key = described.key.c_str(),
                     .source = name(described.kernel.from()).data(),
                     .tier = name(described.kernel.tier()).data(),
                     .compile_ms = described.kernel.compile_ms()});
  });
}

sk_status sk_kernel_field(const sk_kernel* kernel, const char* name, const char** text) {
  return guarded(
      [&] { given(text, "text") = text_of(*given(kernel, "kernel").fields, &given(name, "name")); });
}
