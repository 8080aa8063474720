#pragma once

/// Sparsekiln: a compiler for block-sparse linear layers. Everything a user includes.

#include <sparsekiln/binary.h>
#include <sparsekiln/built.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/config.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/digest.h>
#include <sparsekiln/error.h>
#include <sparsekiln/kernel.h>
#include <sparsekiln/layout.h>
#include <sparsekiln/mixing.h>
#include <sparsekiln/operands.h>
#include <sparsekiln/options.h>
#include <sparsekiln/patterns.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>
#include <sparsekiln/tensor_view.h>
#include <sparsekiln/threads.h>
