#include "compiler/cuda/compatibility.h"

#include <string>

#include <doctest/doctest.h>

namespace sparsekiln::cuda {
namespace {

TEST_CASE("cubins need a driver of their NVRTC's major version, and PTX one of its whole version") {
  struct Row {
    int driver, nvrtc;
    Loads loads;
  };
  for (const Row& row :
       {Row{12040, 12040, Loads::both}, Row{12040, 12000, Loads::both}, Row{12040, 12090, Loads::cubin},
        Row{12090, 13000, Loads::nothing}, Row{13000, 12090, Loads::both}, Row{13000, 13000, Loads::both},
        Row{13000, 13010, Loads::cubin}, Row{13010, 13010, Loads::both}, Row{11080, 12000, Loads::nothing},
        Row{0, 99000, Loads::both}}) {
    CAPTURE(row.driver);
    CAPTURE(row.nvrtc);
    CHECK(loads(row.driver, row.nvrtc) == row.loads);
  }
}

TEST_CASE("a version's text reads back, and what is no version is none") {
  for (const int version : {12000, 12040, 12090, 13000, 13010})
    CHECK(parse_version(version_text(version)) == version);
  for (const char* text :
       {"", "13", "13.", ".4", "12.4 ", "12.4.1", "12,4", "-1.2", "x", "99999999999.1", "12.100"}) {
    CAPTURE(text);
    CHECK(parse_version(text) == 0);
  }
}

TEST_CASE(
    "what would work with a driver is named by NVRTC's versions, pip's package and the driver's release") {
  CHECK(nvrtc_for(12040) ==
        "NVRTC 12.0 to 12.4 (pip install 'nvidia-cuda-nvrtc-cu12<12.5', or a CUDA toolkit)");
  CHECK(nvrtc_for(13010) == "NVRTC 13.0 to 13.1 (pip install 'nvidia-cuda-nvrtc<13.2', or a CUDA toolkit)");
  CHECK(nvrtc_for(11080).empty());
  CHECK(driver_for(12090) == "a driver of release 525 or later");
  CHECK(driver_for(13010) == "a driver of release 580 or later");
  CHECK(driver_for(15000) == "a driver for CUDA 15");
  CHECK(describe_driver({12040, "550.54.14"}) == "driver 550.54.14 (CUDA 12.4)");
  CHECK(describe_driver({12040}) == "a driver for CUDA 12.4");
}

}  // namespace
}  // namespace sparsekiln::cuda
