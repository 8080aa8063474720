#include "compiler/computation_fields.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

#include "compiler/activation.h"
#include "compiler/element.h"

namespace sparsekiln {
namespace {

/// With no field as it is by default.
Computation unusual() {
  Computation what;
  what.operation = Operation::grad_weight;
  what.block = {16, 8};
  what.batch = Batch::up_to(64);
  what.dtype = DType::bf16;
  what.out_dtype = DType::bf16;
  what.math = Math::tf32;
  what.order = ActivationOrder::feature_major;
  what.strict_absent = true;
  what.epilogue = {
      .scale = true, .bias = true, .activation = Activation::silu, .glu = true, .residual = true};
  what.derivative = Activation::gelu_tanh;
  what.block_scales = true;
  what.bias_gradient = true;
  what.block_scale_gradient = true;
  what.alignment = 4;
  what.overlap_launches = true;
  what.convolution = parse_convolution("kernel=3x5 stride=2 dilation=1x3 padding=0:1x1:2 input=20x30");
  return what;
}

TEST_CASE("default options give the default computation") {
  CHECK(computation_of(Options{}) == Computation{});
}

TEST_CASE("every field can be read from its text, alone") {
  const Computation all = unusual();
  for (const ComputationField& field : computation_fields()) {
    CAPTURE(field.name);
    Computation read;
    field.read(read, field.text(all));
    CHECK(field.text(read) == field.text(all));
    CHECK_FALSE(read == Computation{});
    Options options;
    field.read(options, field.text(all));
    CHECK(field.text(computation_of(options)) == field.text(all));
    CHECK(field.bits(options) != field.bits(Options{}));
  }
}

TEST_CASE("each epilogue has bits of its own") {
  constexpr std::array kParts{&Epilogue::scale,      &Epilogue::bias,     &Epilogue::glu,
                              &Epilogue::residual,   &Epilogue::lstm,     &Epilogue::edge_bias,
                              &Epilogue::layer_norm, &Epilogue::multiply, &Epilogue::keep,
                              &Epilogue::add,        &Epilogue::row_scale};
  const ComputationField& field = computation_field("epilogue");
  std::set<std::uint64_t> all;
  std::size_t made = 0;
  for (const ActivationRow& activation : activation_rows())
    for (std::size_t parts = 0; parts < std::size_t{1} << kParts.size(); ++parts) {
      Options options;
      options.epilogue.activation = activation.value;
      for (std::size_t i = 0; i < kParts.size(); ++i) options.epilogue.*kParts[i] = (parts >> i & 1) != 0;
      all.insert(field.bits(options));
      ++made;
    }
  CHECK(all.size() == made);
}

TEST_CASE("options with the texts of all fields decide the computation that had these") {
  Options options;
  for (const ComputationField& field : computation_fields()) field.read(options, field.text(unusual()));
  CHECK(computation_of(options) == unusual());
}

TEST_CASE("the text of the default reads as the default, except for fields that follow another one") {
  for (const ComputationField& field : computation_fields()) {
    CAPTURE(field.name);
    CHECK(field.usual().empty() == !field.follows.empty());
    if (!field.follows.empty()) continue;
    Computation read = unusual();
    field.read(read, field.usual());
    CHECK(field.text(read) == field.text(Computation{}));
  }
}

TEST_CASE("the output type follows the type of the operands until it is stated") {
  Options options;
  computation_field("dtype").read(options, "bf16");
  CHECK(computation_of(options).out_dtype == DType::bf16);
  computation_field("out_dtype").read(options, "f32");
  CHECK(computation_of(options).out_dtype == DType::f32);
}

TEST_CASE("no two fields have a name in common, wherever they are named") {
  std::set<std::string_view> names, arguments, options;
  std::set<std::string> keys;
  for (const ComputationField& field : computation_fields()) {
    CAPTURE(field.name);
    CHECK(names.insert(field.name).second);
    CHECK(arguments.insert(field.argument).second);
    CHECK(options.insert(field.option).second);
    CHECK(keys.insert(field.job_key()).second);
    CHECK_FALSE(field.help.empty());
  }
}

TEST_CASE("a field that was added later is stated only where its value is not the usual one") {
  const ComputationField& convolution = computation_field("convolution");
  CHECK(convolution.optional);
  CHECK_FALSE(convolution.stated(Computation{}));
  CHECK(convolution.stated(unusual()));
  CHECK(computation_field("overlap_launches").stated(Computation{}));
}

TEST_CASE("an enumeration lists its values, and the list grows with it") {
  CHECK(computation_field("math").choices() == "ieee, tf32");
  CHECK(computation_field("derivative").choices() == "none, " + activation_names());
  std::string types;  // of operands
  for (const Element& type : elements()) {
    if (type.results.empty()) continue;
    if (!types.empty()) types += ", ";
    types += type.name;
  }
  CHECK(computation_field("dtype").choices() == types);
  const std::string results = computation_field("out_dtype").choices();
  CHECK(results.find("i32") != results.npos);
  CHECK(results.find("e4m3") == results.npos);
}

TEST_CASE("a text that no value has is refused, with the field or the kind of value in the message") {
  const auto message = [](std::string_view field, std::string_view text) {
    Computation what;
    try {
      computation_field(field).read(what, text);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::invalid_argument);
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(message("gates", "maybe").find("gates 'maybe'") != std::string::npos);
  CHECK(message("alignment", "8 bytes").find("alignment 8 bytes") != std::string::npos);
  CHECK(message("dtype", "f12").find("f12") != std::string::npos);
  CHECK_THROWS_AS((void)computation_field("colour"), Error);
}

TEST_CASE("a field is found by its name and by its argument, and stored by its name") {
  for (const ComputationField& field : computation_fields()) {
    CHECK(&computation_field(field.name) == &field);
    CHECK(&computation_field(field.argument) == &field);
  }
  CHECK(computation_field("block_scales").name == "gates");
  CHECK(computation_field("block_scale_gradient").name == "gate_gradient");
}

}  // namespace
}  // namespace sparsekiln
