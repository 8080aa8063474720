#pragma once

#include <cuda.h>

/// What the stub driver calls its errors, in the real one's words.
namespace stub {

CUresult get_error_name(CUresult result, const char** name);
CUresult get_error_string(CUresult result, const char** text);

}  // namespace stub
