"""Every bad input: its exit status, a message that names the thing, the place and what would work, and no traces."""

import os
import pathlib
import resource
import signal
import tempfile
import unittest

from command import CommandTest, compilable_targets, npy, shaped

_NO_SENSE, _FAILED = 2, 1
_TARGET = compilable_targets()[0]

# File name, content, and what the message must hold beside the name.
_DAMAGED_FILES = [
    ("empty.npy", b"", ["byte 0"]),
    ("magic.npy", b"\x93NUMPX\x01\x00" + b"\0" * 120, ["byte 0", "magic"]),
    ("version.npy", npy("{}", b"", version=b"\x09\x00"), ["byte 6", "1.0"]),
    ("short_header.npy", shaped("(2, 2)")[:40], ["byte", "header"]),
    ("header_length.npy", npy("{}", b"", length=60000), ["byte", "header"]),
    ("no_dictionary.npy", npy("nonsense", b""), ["byte", "expected"]),
    ("truncated_data.npy", shaped("(2, 3)", b"\1" * 5), ["byte", "6"]),
    ("lying_shape.npy", shaped("(4000, 4000)"), ["byte", "4000"]),
    ("huge_shape.npy", shaped("(99999999999, 99999999999)"), ["byte", "expected"]),
    ("trailing.npy", shaped("(2, 2)", b"\1" * 9), ["byte"]),
    ("negative.npy", shaped("(-2, 2)"), ["byte", "-2"]),
    ("one_d.npy", shaped("(4,)"), ["byte", "1-D", "2-D"]),
    ("three_d.npy", shaped("(2, 2, 1)"), ["byte", "more than two dimensions", "2-D"]),
    ("float.npy", shaped("(2, 2)", b"\0" * 16, "<f4"), ["byte", "<f4", "bool"]),
    ("object.npy", shaped("(2, 2)", b"\0" * 16, "|O"), ["byte", "|O", "bool"]),
    ("banner.mtx", "%%MatrixMarket tensor\n2 2 1\n1 1\n", ["line 1", "expected"]),
    ("negative.mtx", "%%MatrixMarket matrix coordinate pattern general\n-3 4 1\n1 1\n", ["line 2", "-3", "expected"]),
    ("outside.mtx", "%%MatrixMarket matrix coordinate pattern general\n3 4 1\n4 1\n", ["line 3", "4"]),
    ("missing.mtx", "%%MatrixMarket matrix coordinate pattern general\n3 4 2\n1 1\n", ["line", "1 of 2"]),
    ("twice.mtx", "%%MatrixMarket matrix coordinate integer general\n3 4 2\n1 1 1\n1 1 -1\n", ["line 4", "another sign"]),
    ("negative.smtx", "-3, 4, 1\n0 1 1 1\n0\n", ["line 1", "-3", "expected"]),
    ("counts.smtx", "2, 2, 5\n0 1 2\n0 1\n", ["line"]),
    ("ragged.txt", "0 1\n1\n", ["line 2"]),
    ("letters.txt", "01\n0x\n", ["line 2", "x"]),
]

# Arguments after `compile L.npy`, and what the message must hold.
_SENSELESS_REQUESTS = [
    (["--block", "0"], ["block with 0", "8, 16, 32, 64, 128"]),
    (["--block", "7"], ["block with 7", "8, 16, 32, 64, 128"]),
    (["--block", "-8"], ["block with -8", "8, 16, 32, 64, 128"]),
    (["--block", "8x7"], ["block with 7 columns", "8, 16, 32, 64, 128"]),
    (["--block", "big"], ["'big'", "8x32"]),
    (["--block", "99999999999"], ["block with 99999999999 rows", "8, 16, 32, 64, 128"]),
    (["--block", "8x4294967304"], ["block with 4294967304 columns", "8, 16, 32, 64, 128"]),
    (["--block", "99999999999999999999"], ["99999999999999999999", "8x32"]),
    (["--batch", "-1"], ["batch of -1", "0 to"]),
    (["--batch", "4294967296"], ["batch of 4294967296", "0 to"]),
    (["--batch", "up-to:-1"], ["batch of -1", "0 to"]),
    (["--batch", "many"], ["'many'", "up-to:8192"]),
    (["--dtype", "int3"], ["'int3'", "f32", "bf16"]),
    (["--dtype", "f16", "--out-dtype", "bf16"], ["bf16", "f16", "f32"]),
    (["--dtype", "f64", "--out-dtype", "f32"], ["output type f32 of f64", "it is f64"]),
    (["--math", "tf32", "--dtype", "f64"], ["tf32", "f64", "f32"]),
    (["--math", "fp8"], ["'fp8'", "ieee", "tf32"]),
    (["--math", "tf32"], ["tf32", "ieee"]),
    (["--math", "tf32", "--dtype", "bf16"], ["tf32", "bf16", "f32"]),
    (["--config", "mma operand_a=y"], ["'y'", "x, w"]),
    (["--op", "backward"], ["'backward'", "forward"]),
    (["--op", "grad_input", "--epilogue", "bias"], ["epilogue bias of grad_input", "scale or none", "bias_gradient"]),
    (["--op", "grad_weight", "--epilogue", "scale+relu"], ["epilogue scale+relu of grad_weight", "derivative"]),
    (["--epilogue", "cube"], ["'cube'", "gelu_tanh"]),
    (["--epilogue", "bias+bias"], ["'bias'", "twice"]),
    (["--epilogue", "glu"], ["glu", "silu+glu"]),
    (["--epilogue", "keep"], ["epilogue keep", "a part of lstm", "lstm+keep"]),
    (["--epilogue", "lstm+bias"], ["epilogue bias+lstm of forward", "biases come with the projection", "lstm+keep"]),
    (["--epilogue", "lstm+tanh"], ["epilogue tanh+lstm of forward", "lstm+keep"]),
    (["--epilogue", "scale+lstm"], ["epilogue scale+lstm of forward", "lstm+keep"]),
    (["--epilogue", "lstm+residual"], ["epilogue lstm+residual of forward", "lstm+residual for grad_input"]),
    (["--epilogue", "lstm", "--conv", "kernel=3 input=9"], ["epilogue lstm of forward", "a linear layer's", "without --conv"]),
    (["--epilogue", "lstm", "--block-scales"], ["epilogue lstm of forward", "no block scales"]),
    (["--epilogue", "lstm", "--out-features", "100"], ["epilogue lstm of forward", "whole blocks"]),
    (["--epilogue", "lstm", "--op", "grad_input", "--in-features", "100"], ["epilogue lstm of grad_input", "whole blocks"]),
    (["--epilogue", "lstm", "--op", "grad_input", "--derivative", "relu"], ["epilogue lstm of grad_input", "derivative"]),
    (["--epilogue", "lstm+keep", "--op", "grad_input"], ["epilogue lstm+keep of grad_input", "lstm+residual"]),
    (["--epilogue", "lstm+residual", "--op", "grad_weight"], ["epilogue lstm+residual of grad_weight", "scale+lstm"]),
    (["--epilogue", "multiply"], ["epilogue multiply", "parts of layer_norm", "layer_norm+multiply+add"]),
    (["--epilogue", "layer_norm+bias"], ["epilogue bias+layer_norm of forward", "its gain and bias are always there"]),
    (["--epilogue", "layer_norm+residual"], ["epilogue layer_norm+residual of forward", "for grad_input with residual"]),
    (["--epilogue", "layer_norm+add+lstm"], ["epilogue layer_norm+add+lstm of forward", "multiply and lstm"]),
    (["--epilogue", "layer_norm+keep+lstm"], ["epilogue layer_norm+lstm+keep of forward", "multiply and lstm"]),
    (["--epilogue", "layer_norm+silu+glu"], ["epilogue layer_norm+silu+glu of forward", "one activation"]),
    (["--epilogue", "layer_norm", "--conv", "kernel=3 input=9"], ["epilogue layer_norm of forward", "a linear layer's", "without --conv"]),
    (["--epilogue", "layer_norm", "--activation-order", "feature-major"], ["epilogue layer_norm of forward", "batch-major"]),
    (["--epilogue", "layer_norm", "--op", "grad_weight"], ["epilogue layer_norm of grad_weight", "none or scale would work"]),
    (["--epilogue", "layer_norm", "--op", "grad_input", "--derivative", "relu"], ["epilogue layer_norm of grad_input", "derivatives"]),
    (["--derivative", "relu"], ["derivative relu of forward", "epilogue relu"]),
    (["--bias-gradient"], ["bias_gradient of forward", "grad_weight"]),
    (["--op", "grad_weight", "--block-scale-gradient"], ["block_scale_gradient without block_scales"]),
    (["--op", "grad_weight", "--gate-gradient"], ["block_scale_gradient without block_scales"]),
    (["--activation-order", "diagonal"], ["'diagonal'", "batch-major", "feature-major"]),
    (["--in-features", "99999"], ["99999 input features", "hold"]),
    (["--out-features", "-1"], ["-1 output features", "hold"]),
    (["--alignment", "3"], ["aligned to 3 bytes", "16, 8 or 4 would work"]),
    (["--target", "tpu"], ["'tpu'", "cpu", "sm_75"]),
    (["--target", "sm_60"], ["'sm_60'", "sm_75"]),
    (["--target", "sm_90:0"], ["sm_90:0", "1 to"]),
    (["--target", "sm_90:x"], ["sm_90:x", "1 to"]),
    (["--target", ""], ["''", "cpu"]),
    (["--config", "magic tile_n=4"], ["'magic'", "simt"]),
    (["--config", "simt tile_n=-4"], ["-4", "tile_n"]),
    (["--config", "simt colour=4"], ["colour", "tile_n"]),
    (["--attached", "--tiered", "--target", "x86-64-v3:2"], ["attached and tiered", "one of them"]),
    (["--frobnicate"], ["--frobnicate", "sparsekiln compile --help"]),
]

_FILES_OF_TAPS = {
    "two.txt": "11",
    "none.txt": "00",
    "words.txt": "one two",
    "three.npy": shaped("(3, 1)", bytes(3)),
    "short.npy": shaped("(2,)", b"1"),
    "floats.npy": shaped("(2,)", bytes(8), "<f4"),
}

# A convolution, more arguments, and what the message must hold.
_SENSELESS_CONVOLUTIONS = [
    ("kernel=0 input=4", [], ["kernel is 0", "1 or more"]),
    ("kernel=5 input=3", [], ["kernel that reaches over 5", "no output"]),
    ("kernel=3 input=9 stride=0", [], ["stride is 0"]),
    ("kernel=3 input=9 padding=-1", [], ["padding is -1"]),
    ("kernel=1 input=5 stride=100000", [], ["strides of more than 4096"]),
    ("kernel=2x2x2 input=2 dilation=536870912 padding=268435456", [], ["too many positions"]),
    ("kernel=3 input=9 padding=same stride=2", [], ["padding=same", "stride"]),
    ("kernel=3", [], ["lacks its input", "input=32x32"]),
    ("kernel=3x3x3x3 input=4", [], ["4 dimensions", "1, 2 or 3"]),
    ("spiral=1", [], ["'spiral=1'", "kernel=3x3"]),
    ("kernel=3 input=9 output-padding=1", [], ["output padding", "transposed"]),
    ("kernel=3 input=9 output-padding=1", ["--transposed"], ["output padding is 1", "stride of 1", "dilation of 1"]),
    ("kernel=3 input=1 padding=2", ["--transposed"], ["padding of 4", "no output"]),
    ("none", ["--transposed"], ["transposed without conv", "kernel=3x3"]),
    ("none", ["--taps", "two.txt"], ["taps without conv", "kernel=3x3"]),
    ("kernel=3 input=9 taps=11", [], ["mask of 2 taps", "that has 3"]),
    ("kernel=3 input=9 taps=000", [], ["mask without a tap"]),
    ("kernel=3 input=9 taps=111111", [], ["4 blocks", "taps of 2", "3 digits", "12"]),
    ("kernel=3 input=9 taps=12", [], ["0 or 1", "'2'"]),
    ("kernel=3 input=9 taps=111", ["--taps", "two.txt"], ["two.txt", "text of the convolution"]),
    ("kernel=3 input=9", ["--taps", "two.txt"], ["taps file 'two.txt'", "[2]", "[3]"]),
    ("kernel=2x2 input=9", ["--taps", "three.npy"], ["taps file 'three.npy'", "[3, 1]", "[4]", "[2, 2]"]),
    ("kernel=2 input=9", ["--taps", "none.txt"], ["mask without a tap"]),
    ("kernel=2 input=9", ["--taps", "words.txt"], ["taps file 'words.txt', line 1", "0 or 1"]),
    ("kernel=2 input=9", ["--taps", "short.npy"], ["taps file 'short.npy', byte", "2 elements"]),
    ("kernel=2 input=9", ["--taps", "floats.npy"], ["taps file 'floats.npy', byte", "'<f4'", "bool"]),
    ("kernel=3 input=9", ["--activation-order", "feature-major", "--dtype", "f64"], ["feature-major", "f64", "channels-last"]),
    ("kernel=3 input=9", ["--in-features", "32"], ["32 input features", "hold 33 to 64"]),
    ("kernel=3 transposed input=9", ["--out-features", "65"], ["65 output features", "hold 33 to 64"]),
    ("kernel=3 padding=1 input=up-to:9", ["--epilogue", "edge_bias"], ["edge situations", "one input"]),
    ("kernel=3 input=up-to:2", [], ["reaches over 3", "no output"]),
    ("kernel=3 input=9 taps=111110101111", ["--attached"], ["taps for each block with attached", "3 taps for all blocks"]),
]

# Arguments after `layout make`, and what the message must hold.
_SENSELESS_PATTERNS = [
    (["spiral", "--size", "4"], ["'spiral'", "watts-strogatz", "bigbird"]),
    (["random", "--rows", "4", "--density", "0.5"], ["random", "--cols"]),
    (["random", "--size", "4"], ["random", "--density"]),
    (["causal"], ["causal", "--size"]),
    (["causal", "--rows", "4", "--cols", "5"], ["causal", "square", "4", "5"]),
    (["causal", "--size", "4", "--rows", "4"], ["causal", "--size", "--rows"]),
    (["banded", "--size", "4", "--half-width", "1", "--density", "0.5"], ["banded", "--density", "--half-width"]),
    (["random", "--size", "4", "--density", "1.5"], ["density", "1.5"]),
    (["random", "--size", "4", "--density", "-0.5"], ["density", "-0.5"]),
    (["random", "--size", "4", "--density", "nan"], ["density", "nan"]),
    (["random", "--size", "4", "--density", "half"], ["--density", "'half'", "number"]),
    (["random", "--rows", "-4", "--cols", "4", "--density", "0.5"], ["rows", "-4"]),
    (["random", "--rows", "4.5", "--cols", "4", "--density", "0.5"], ["--rows", "'4.5'", "whole number"]),
    (["random", "--size", "99999999999", "--density", "0.5"], ["99999999999"]),
    (["random", "--size", "4", "--density", "0.5", "--seed", "-1"], ["--seed", "-1"]),
    (["watts-strogatz", "--size", "4", "--density", "0.5", "--rewire", "2"], ["rewire", "2"]),
    (["block-diagonal", "--size", "4", "--groups", "0"], ["groups", "0"]),
    (["block-diagonal", "--size", "4", "--groups", "9"], ["groups", "9"]),
    (["butterfly", "--size", "12"], ["12", "power of two"]),
    (["barabasi-albert", "--size", "4", "--edges", "9"], ["edges", "9"]),
    (["barabasi-albert", "--size", "4", "--edges", "1", "--extra-edges", "9"], ["extra_edges is 9", "0 to 3"]),
    (["barabasi-albert", "--size", "4", "--edges", "1", "--extra-edges", "some"], ["--extra-edges", "'some'", "whole number"]),
    (["watts-strogatz", "--size", "4", "--density", "1", "--rewire", "0", "--extra-edges", "1"], ["takes no --extra-edges"]),
    (["watts-strogatz", "--rows", "4", "--cols", "5", "--density", "1", "--rewire", "0", "--diagonal"], ["diagonal", "4 × 5"]),
    (["balanced-random", "--size", "9", "--density", "0.1", "--diagonal"], ["8 blocks", "diagonal alone has 9", "1/9"]),
    (["balanced-watts-strogatz", "--size", "4", "--density", "0.5"], ["balanced-watts-strogatz", "--rewire"]),
    (["strided", "--size", "4", "--stride", "0"], ["stride", "0"]),
]

# Arguments after `layout mix`, and what the message must hold.
_SENSELESS_MIXES = [
    ([], ["FILE"]),
    (["wide.npy", "wide.npy"], ["wide.npy has 5 block columns", "wide.npy, the layer before it, has 4 block rows"]),
    (["square.npy", "square.npy", "wide.npy"], ["wide.npy has 5", "square.npy, the layer before it, has 3", "the same"]),
    (["wide.npy", "--steps", "2"], ["--steps", "square", "wide.npy", "4 × 5"]),
    (["square.npy", "square.npy", "--steps", "2"], ["--steps", "2 files"]),
    (["square.npy", "--steps", "0"], ["--steps is 0", "1 to 1000"]),
    (["square.npy", "--steps", "-1"], ["--steps is -1", "1 to 1000"]),
    (["square.npy", "--steps", "1001"], ["--steps is 1001", "1 to 1000"]),
    (["square.npy", "--steps", "few"], ["--steps", "'few'", "whole number"]),
    (["empty.npy"], ["layer 1 has 0 × 3 blocks", "1 × 1"]),
    (["damaged.npy"], ["damaged.npy", "byte"]),
]


class BadFileTest(CommandTest):
    def test_a_damaged_layout_is_refused_with_its_name_and_the_place(self):
        for file, content, needles in _DAMAGED_FILES:
            with self.subTest(file):
                self.write(file, content)
                self.assert_refused(_NO_SENSE, ["layout", "show", file], [file, *needles])

    def test_layers_that_cannot_be_mixed_are_refused(self):
        self.make("random", "--rows", 4, "--cols", 5, "--density", 0.5, file="wide.npy")
        self.make("causal", "--size", 3, file="square.npy")
        self.write("empty.npy", shaped("(0, 3)", b""))
        self.write("damaged.npy", shaped("(2, 3)", b"\1" * 5))
        for arguments, needles in _SENSELESS_MIXES:
            with self.subTest(" ".join(arguments)):
                self.assert_refused(_NO_SENSE, ["layout", "mix", *arguments], needles)

    def test_a_senseless_convolution_is_refused(self):
        self.make("random", "--size", 2, "--density", 1)
        for file, content in _FILES_OF_TAPS.items():
            self.write(file, content)
        for convolution, arguments, needles in _SENSELESS_CONVOLUTIONS:
            for target in ("x86-64-v3:2", "sm_90"):
                with self.subTest(convolution=convolution, arguments=arguments, target=target):
                    request = ["compile", "L.npy", "--target", target, "--block", "32", "-o", "out", "--conv", convolution]
                    self.assert_refused(_NO_SENSE, request + arguments, needles)

    def test_an_input_that_a_convolution_does_not_take_is_refused(self):
        self.make("random", "--size", 2, "--density", 1)
        for command in ("run", "verify"):
            for convolution, extents, needles in (
                ("kernel=3x3 input=9", "7x7", ["--input 7x7", "input=up-to:7x7"]),
                ("none", "7", ["--input 7", "no images", "up-to:7"]),
                ("kernel=3x3 input=up-to:9x8", "9x9", ["an input of 9x9", "up to 9x8"]),
                ("kernel=3x3 input=up-to:9x8", "2x8", ["reaches over 3", "input of 2", "no output"]),
                ("kernel=3x3 input=up-to:9x8", "5x5x5", ["5x5x5 has 3 dimensions", "2"]),
                ("kernel=3x3 input=up-to:9x8", "five", ["extents 'five'", "24x20"]),
                ("kernel=3x3 input=up-to:9x8", "5x", ["extents '5x'", "24x20"]),
            ):
                with self.subTest(command=command, convolution=convolution, extents=extents):
                    request = [command, "L.npy", "--conv", convolution, "--input", extents, "--target", "emulated"]
                    self.assert_refused(_NO_SENSE, request, needles)

    def test_a_glu_pair_of_blocks_that_tensor_cores_cannot_take_is_refused_for_that(self):
        self.make("random", "--size", 2, "--density", 1)
        request = ["compile", "L.npy", "--epilogue", "silu+glu", "--dtype", "f16", "--block", "8", "--target", "sm_90"]
        self.assert_refused(_NO_SENSE, [*request, "-o", "out"], ["a glu pair", "16"])

    def test_the_gates_of_an_lstm_of_blocks_that_tensor_cores_cannot_take_are_refused_for_that(self):
        self.make("random", "--size", 2, "--density", 1)
        request = ["compile", "L.npy", "--epilogue", "lstm", "--dtype", "f16", "--block", "8", "--target", "sm_90"]
        self.assert_refused(_NO_SENSE, [*request, "-o", "out"], ["an LSTM's cell", "16"])

    def test_channels_first_images_with_any_layout_are_refused_on_gpus_alone(self):
        self.make("random", "--size", 2, "--density", 1)
        request = ["compile", "L.npy", "--conv", "kernel=3 input=9", "--activation-order", "feature-major", "-o", "out"]
        for asked in ("attached", "tiered"):
            words = ["channels-first", asked, "sm_90", "channels-last"]
            self.assert_refused(_NO_SENSE, [*request, f"--{asked}", "--target", "sm_90"], words)
        result = self.run_tool(*request, "--attached", "--target", "x86-64-v3:2")
        self.assertEqual(result.status, 0, result.err)

    def test_an_edge_bias_of_channels_first_activations_is_refused_for_cpus_alone(self):
        self.make("random", "--size", 2, "--density", 1)
        request = ["compile", "L.npy", "--conv", "kernel=3 input=9", "--activation-order", "feature-major", "-o", "out"]
        request += ["--epilogue", "edge_bias", "--target"]
        self.assert_refused(_NO_SENSE, [*request, "x86-64-v3:2"], ["edge bias", "cpu target", "channels-last"])
        result = self.run_tool(*request, "sm_90")
        self.assertEqual(result.status, 0, result.err)

    def test_every_command_that_takes_a_layout_refuses_a_damaged_one(self):
        self.write("L.npy", shaped("(2, 2, 1)"))
        for command in (["compile", "L.npy", "-o", "out"], ["run", "L.npy"], ["layout", "show", "L.npy", "--png", "p"]):
            with self.subTest(command[0]):
                self.assert_refused(_NO_SENSE, command, ["L.npy", "2-D"])

    def test_a_small_file_of_a_huge_empty_layout_is_refused_by_every_command_that_would_work_on_it(self):
        for shape in ("(16777216, 0)", "(0, 16777216)"):
            self.write("L.npy", shaped(shape, b""))
            for command in ("compile", "run", "verify", "tune"):
                for operation in ("forward", "grad_weight"):
                    request = [command, "L.npy", "--target", "emulated", "--op", operation]
                    self.assert_refused(2, request, ["16777216", "are empty"])

    def test_a_file_that_is_missing_or_a_folder_fails(self):
        (self.folder / "folder.npy").mkdir()
        for file in ("missing.npy", "folder.npy"):
            with self.subTest(file):
                self.assert_refused(_FAILED, ["layout", "show", file], [file])

    def test_a_pipe_or_a_device_fails_without_being_read(self):
        os.mkfifo(self.folder / "pipe")
        for file in ("pipe", "/dev/zero"):
            with self.subTest(file):
                self.assert_refused(_FAILED, ["compile", file, "--target", _TARGET], [file, "no regular file"])

    @unittest.skipIf(os.geteuid() == 0, "root may read everything")
    def test_a_file_without_permission_fails(self):
        self.write("L.npy", shaped("(2, 2)"))
        (self.folder / "L.npy").chmod(0)
        self.assert_refused(_FAILED, ["layout", "show", "L.npy"], ["L.npy", "ermission"])


class BadRequestTest(CommandTest):
    def test_compile_refuses_a_type_that_the_architecture_lacks(self):
        self.make("random", "--size", 4, "--density", 0.5)
        self.assert_refused(
            _NO_SENSE,
            ["compile", "L.npy", "--dtype", "bf16", "--target", "sm_75"],
            ["bf16", "sm_75", "sm_80", "f16"],
        )

    def test_cuda_targets_refuse_float64(self):
        self.make("random", "--size", 4, "--density", 0.5)
        for operation in ("forward", "grad_weight"):
            for form in ([], ["--attached"], ["--config", "simt tile_n=32 tile_out=4 warps=4"]):
                request = ["compile", "L.npy", "--dtype", "f64", "--op", operation, "--target", "sm_90", *form]
                self.assert_refused(_NO_SENSE, request, ["f64 on sm_90", "float64 runs only on the cpu target", "f32"])

    def test_a_request_without_sense_says_what_would_work(self):
        self.make("random", "--size", 4, "--density", 0.5)
        for arguments, needles in _SENSELESS_REQUESTS:
            for command in ("compile", "run"):
                wanted = [needle.replace("sparsekiln compile", f"sparsekiln {command}") for needle in needles]
                with self.subTest(" ".join([command, *arguments])):
                    self.assert_refused(_NO_SENSE, [command, "L.npy", *arguments], wanted)

    def test_a_pattern_without_sense_says_what_would_work(self):
        for arguments, needles in _SENSELESS_PATTERNS:
            with self.subTest(" ".join(arguments)):
                self.assert_refused(_NO_SENSE, ["layout", "make", *arguments, "-o", "L.npy"], needles)

    def test_a_layout_is_not_written_as_text_under_the_name_of_something_else(self):
        for name in ("L.npz", "L.NPY", "L.json"):
            self.assert_refused(
                _NO_SENSE, ["layout", "make", "causal", "--size", 4, "-o", name], [name, ".npy, .mtx, .smtx or .txt would work"]
            )

    def test_an_output_folder_without_a_name_is_refused(self):
        self.make("random", "--size", 4, "--density", 0.5)
        self.assert_refused(_NO_SENSE, ["compile", "L.npy", "--target", _TARGET, "-o", ""], ["--output", "''"])

    def test_an_option_without_its_value_is_named(self):
        result = self.run_tool("compile", "L.npy", "--block")
        self.assertEqual(result.status, _NO_SENSE)
        self.assertIn("--block", result.err)
        self.assertIn("sparsekiln compile --help", result.err)

    def test_a_run_with_another_batch_than_was_compiled_is_refused(self):
        self.make("random", "--size", 4, "--density", 0.5)
        run = ["run", "L.npy", "--target", "cpu"]
        self.assert_refused(_NO_SENSE, [*run, "--batch", "8", "--n", "4"], ["--n 4", "up-to:4"])
        self.assert_refused(_NO_SENSE, [*run, "--batch", "up-to:8", "--n", "9"], ["--n 9", "0 to 8"])
        self.assert_refused(_NO_SENSE, [*run, "--repeat", "0"], ["--repeat 0", "1 or more"])

    def test_no_command_an_unknown_one_and_a_missing_argument_point_at_the_help(self):
        for arguments, needles in (
            ([], ["sparsekiln --help"]),
            (["frobnicate"], ["frobnicate", "sparsekiln --help"]),
            (["layout"], ["sparsekiln layout --help"]),
            (["layout", "make"], ["PATTERN", "sparsekiln layout make --help"]),
            (["compile"], ["FILE", "sparsekiln compile --help"]),
        ):
            with self.subTest(" ".join(arguments)):
                self.assert_refused(_NO_SENSE, arguments, needles)


class BadOutputTest(CommandTest):
    def test_an_output_that_cannot_be_written_fails_and_leaves_nothing(self):
        self.make("random", "--size", 4, "--density", 0.5)
        self.write("plain", "not a folder")
        for arguments in (
            ["layout", "make", "causal", "--size", 4, "-o", "no/such/L.npy"],
            ["layout", "make", "causal", "--size", 4, "-o", "plain/L.npy"],
            ["layout", "show", "L.npy", "--png", "no/such.png"],
            ["compile", "L.npy", "--target", _TARGET, "-o", "plain"],
            ["compile", "L.npy", "--target", _TARGET, "-o", "plain/out"],
        ):
            with self.subTest(" ".join(map(str, arguments))):
                self.assert_refused(_FAILED, arguments, [str(arguments[-1])])

    def test_a_folder_in_the_place_of_a_file_stops_all_files(self):
        self.make("random", "--size", 4, "--density", 0.5)
        (self.folder / "out" / "schedule.json").mkdir(parents=True)
        self.assert_refused(_FAILED, ["compile", "L.npy", "--target", _TARGET, "-o", "out"], ["schedule.json"])

    def test_a_cache_that_cannot_be_used_never_fails_the_program(self):
        self.make("random", "--size", 4, "--density", 0.5)
        self.write("plain", "not a folder")
        reasons = {self.folder / "plain": "Not a directory", "/proc/no/such": "No such file or directory"}
        commands = {"compile": [_TARGET], "run": ["cpu", "--check"] if _TARGET == "cpu" else None}
        for cache, reason in reasons.items():
            for command, arguments in commands.items():
                if arguments is None:
                    continue
                with self.subTest(cache=cache, command=command):
                    request = [command, "L.npy", "--json", "--target", *arguments]
                    result = self.succeed(*request, SPARSEKILN_CACHE_DIR=str(cache))
                    self.assertEqual(result.json["from"], "compiled")
                    self.assertEqual(len(result.err.splitlines()), 1, result.err)
                    (warning,) = result.json["warnings"]
                    self.assertEqual(result.err, f"sparsekiln: {warning}\n")
                    for needle in ("not kept", str(cache).split("/no")[0], reason, "SPARSEKILN_CACHE_DIR"):
                        self.assertIn(needle, warning)

    def test_a_full_disk_behind_the_cache_says_so(self):
        self.make("random", "--size", 4, "--density", 0.5)
        # The largest file that the command may write stands for the room on the disk.
        full = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)) or signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        result = self.run_tool("compile", "L.npy", "--target", _TARGET, before=full)
        self.assertEqual(result.status, 0, result.err)
        for needle in (str(self.cache), "File too large", "free some space", "SPARSEKILN_CACHE_DIR"):
            self.assertIn(needle, result.err)

    def test_a_cache_that_others_can_write_is_not_used(self):
        self.make("random", "--size", 4, "--density", 0.5)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder).chmod(0o777)
            result = self.succeed("compile", "L.npy", "--target", _TARGET, "--json", SPARSEKILN_CACHE_DIR=folder)
            self.assertEqual(result.json["from"], "compiled")
            self.assertIn(folder, result.err)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])

    def test_a_full_disk_behind_standard_output_is_a_failure(self):
        self.make("random", "--size", 4, "--density", 0.5)
        status, err = self.run_into("/dev/full", "layout", "show", "L.npy")
        self.assertEqual(status, _FAILED)
        self.assertIn("standard output", err)

    def test_a_reader_that_went_away_is_none(self):
        self.make("random", "--size", 4, "--density", 0.5)
        reader, writer = os.pipe()
        os.close(reader)
        status, err = self.run_into(writer, "layout", "show", "L.npy")
        os.close(writer)
        self.assertEqual((status, err), (0, ""))


class NoGpuTest(CommandTest):
    def test_without_a_driver_the_cuda_target_fails_with_one_sentence_and_doctor_says_so(self):
        self.make("random", "--size", 4, "--density", 0.5)
        nowhere = {"SPARSEKILN_CUDA_DRIVER": "/no/such/libcuda.so.1"}
        self.assert_refused(_FAILED, ["run", "L.npy", "--target", "cuda"], ["/no/such/libcuda.so.1"], **nowhere)
        plain = self.run_tool("run", "L.npy", "--target", "cuda", **nowhere)
        self.assertEqual(len(plain.err.splitlines()), 1, plain.err)
        doctor = self.answer("doctor", **nowhere)
        self.assertIs(doctor["cuda_driver"]["found"], False)
        self.assertIn("no GPU", self.succeed("doctor", **nowhere).out)


if __name__ == "__main__":
    unittest.main()
