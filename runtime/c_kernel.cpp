#include "runtime/c_object.h"

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include <sparsekiln/printable.h>

#include "compiler/edge_runs.h"

// Computations and kernels of the C interface.

using sparsekiln::Error;
using sparsekiln::ErrorKind;
using sparsekiln::FieldTexts;
using sparsekiln::give_view;
using sparsekiln::given;
using sparsekiln::guarded;
using sparsekiln::taken;

namespace {

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

sk_status sk_kernel_copy(const sk_kernel* kernel, sk_kernel** copy) {
  return guarded([&] { given(copy, "copy") = new sk_kernel(given(kernel, "kernel")); });
}

void sk_kernel_free(sk_kernel* kernel) { delete kernel; }

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
                     .gates = operands.block_scales,
                     .bias_gradient = operands.bias_gradient,
                     .gate_gradient = operands.block_scale_gradient,
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
