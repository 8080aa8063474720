#include <sparsekiln/config.h>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

namespace sparsekiln {
namespace {

TEST_CASE("a config survives its text") {
  const Config config{.variant = Variant::direct,
                      .tile_n = 32,
                      .tile_out = 6,
                      .stages = 3,
                      .warps = 8,
                      .split = 2,
                      .rows = 4,
                      .merge = 2,
                      .cluster = 2,
                      .cluster_rows = 2,
                      .knobs = {1},
                      .table = TableForm::global,
                      .operand_a = OperandA::w,
                      .packed = true};
  CHECK(parse_config(to_string(config)) == config);
  CHECK(parse_config(to_string(Config{})) == Config{});
  CHECK(to_string(Config{}).find("cluster") == std::string::npos);
}

TEST_CASE("a knob is written by its name, where it is not 0, and another variant has none") {
  Config config{.variant = Variant::direct};
  CHECK(to_string(config).find("panels") == std::string::npos);
  config.knobs[0] = 1;
  CHECK(to_string(config).find(" panels=1 ") != std::string::npos);
  check_knobs(config);
  config.knobs[1] = 1;
  CHECK_THROWS_AS(check_knobs(config), Error);
}

TEST_CASE("each knob of a variant is read by its name, which no other number of a config has") {
  for (const NamedVariant& variant : kVariants)
    for (std::size_t i = 0; i < kMostKnobs; ++i) {
      if (variant.knobs[i].empty()) continue;
      const Config config =
          parse_config(std::string(variant.name) + " " + std::string(variant.knobs[i]) + "=1");
      Config wanted{.variant = variant.value};
      wanted.knobs[i] = 1;
      CHECK(config == wanted);
    }
}

TEST_CASE("a config may leave its split to the layout that is attached") {
  const Config config{.split = kDerivedSplit, .table = TableForm::attached};
  CHECK(to_string(config).find(" split=derived ") != std::string::npos);
  CHECK(parse_config(to_string(config)) == config);
}

TEST_CASE("fields left out keep their defaults") {
  CHECK(parse_config("simt tile_n=16") == Config{.tile_n = 16});
}

TEST_CASE("what makes no sense in a config is named") {
  for (const char* text :
       {"", "wmma", "simt tile_q=3", "simt tile_n", "simt tile_n=-1", "simt tile_n=12x", "simt table=texture",
        "mma operand_a=y", "mma panels=1", "direct =1", "simt  tile_n=8"}) {
    CAPTURE(text);
    CHECK_THROWS_AS((void)parse_config(text), Error);
  }
}

}  // namespace
}  // namespace sparsekiln
