#pragma once

// Small wrappers of PTX instructions, so that emitted sources include no CUDA toolkit header.
