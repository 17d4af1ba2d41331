"""ReLU and max pooling for Theano with the slopes of rule 2, which Theano's own do not have.

theano.tensor.nnet.relu has slope 1/2 at exactly 0, which blank pixels and biases of 0 hit; the gradient of Theano's
pool goes to all cells of a window that tie for its maximum, and in digits nearly all windows of background tie. On the
rows of tests/parity/test_step0.py, against float64, gradients of convolution kernels are up to 12 % off with them and
those of biases 28 to 320 %; with these two no tensor is more than 6e-7 off.

Both are operations of their own in C; the pool's backward looks for the first maximum again. As theano.tensor.switch a
relu takes 40 times as long (13 ms for 64 x 48 images of 28 x 28 on one core, where this takes 0.3), since the processor
guesses at each sign. results/benchmarks/theano_operations.md has what each costs, beside Theano's own.

Both hand on what is no number: a training that diverged has to be seen in its loss.
"""

from __future__ import annotations

from typing import Any

from hpcnn.network.layers import MaxPool2D
from hpcnn.wrappers.theano_import import import_theano

theano: Any = import_theano()
T: Any = theano.tensor


class _Slope(theano.scalar.BinaryScalarOp):  # type: ignore[misc]
    """Of the loss by x, from the one by relu(x)."""

    def impl(self, x: Any, slope: Any) -> Any:
        return type(slope)(0) if x <= 0 else slope

    def c_code(self, node: Any, name: str, inputs: Any, outputs: Any, sub: Any) -> str:
        (x, slope), (z,) = inputs, outputs
        return f"{z} = {x} <= 0 ? 0 : {slope};"

    def c_code_cache_version(self) -> tuple[int, ...]:
        return (1,)


class _Relu(theano.scalar.UnaryScalarOp):  # type: ignore[misc]
    def impl(self, x: Any) -> Any:
        return type(x)(0) if x <= 0 else x

    def grad(self, inputs: Any, slopes: Any) -> Any:
        return [_slope(inputs[0], slopes[0])]

    def c_code(self, node: Any, name: str, inputs: Any, outputs: Any, sub: Any) -> str:
        (x,), (z,) = inputs, outputs
        return f"{z} = {x} <= 0 ? 0 : {x};"

    def c_code_cache_version(self) -> tuple[int, ...]:
        return (1,)


_slope = _Slope(theano.scalar.transfer_type(1), name="relu_slope")
relu: Any = T.Elemwise(_Relu(theano.scalar.same_out, name="relu"))
"""max(x, 0), and nan of nan; its slope at 0 is 0."""


def first_max_pool(layer: MaxPool2D) -> Any:
    """Of float32 images (n, c, h, w); what is left over at the bottom and right is dropped."""
    return FirstMaxPool(layer.size, layer.stride)


_IMAGE = """
    PyArrayObject *image = PyArray_GETCONTIGUOUS({x});
    if (!image) {{ {fail} }}
    const npy_intp *shape = PyArray_DIMS(image);
    const npy_intp height = shape[2], width = shape[3], planes = shape[0] * shape[1];
    const npy_intp rows = (height - {high}) / {down} + 1, columns = (width - {wide}) / {right} + 1;
"""
_RESULT = """
    if (!{z} || !PyArray_IS_C_CONTIGUOUS({z}) || !PyArray_CompareLists(PyArray_DIMS({z}), {lengths}, 4)) {{
        Py_XDECREF({z});
        {z} = (PyArrayObject *)PyArray_SimpleNew(4, {lengths}, NPY_FLOAT32);
        if (!{z}) {{ Py_DECREF(image); {fail} }}
    }}
    const npy_float32 *from = (const npy_float32 *)PyArray_DATA(image);
    npy_float32 *to = (npy_float32 *)PyArray_DATA({z});
"""
_LARGEST = """
                npy_float32 best = window[0];
                bool no_number = false;
                for (int i = 0; i < {high}; ++i)
                    for (int j = 0; j < {wide}; ++j) {{
                        const npy_float32 here = window[i * width + j];
                        no_number |= here != here;
                        best = here > best ? here : best; // one instruction: the processor has nothing to guess at
                    }}
                best = no_number ? NAN : best;
"""
_FORWARD = f"""
    {_IMAGE}
    npy_intp found[4] = {{{{shape[0], shape[1], rows, columns}}}};
    {_RESULT}
    {{parallel}}
    for (npy_intp plane = 0; plane < planes; ++plane)
        for (npy_intp row = 0; row < rows; ++row)
            for (npy_intp column = 0; column < columns; ++column) {{{{
                const npy_float32 *window = from + (plane * height + row * {{down}}) * width + column * {{right}};
                {_LARGEST}
                to[(plane * rows + row) * columns + column] = best;
            }}}}
    Py_DECREF(image);
"""
_BACKWARD = f"""
    {_IMAGE}
    npy_intp found[4] = {{{{shape[0], shape[1], height, width}}}};
    {_RESULT}
    PyArrayObject *slope = PyArray_GETCONTIGUOUS({{slope}});
    if (!slope) {{{{ Py_DECREF(image); {{fail}} }}}}
    const npy_float32 *given = (const npy_float32 *)PyArray_DATA(slope);
    const bool tiles = {{tiles}} && rows * {{down}} == height && columns * {{right}} == width;
    {{parallel}}
    for (npy_intp plane = 0; plane < planes; ++plane) {{{{
        if (!tiles)
            memset(to + plane * height * width, 0, height * width * sizeof(npy_float32));
        for (npy_intp row = 0; row < rows; ++row) {{{{
            const npy_intp start = (plane * height + row * {{down}}) * width;
            const npy_float32 *__restrict__ images = from + start;
            const npy_float32 *__restrict__ slopes = given + (plane * rows + row) * columns;
            npy_float32 *__restrict__ gradients = to + start;
            for (npy_intp column = 0; column < columns; ++column) {{{{
                const npy_float32 *window = images + column * {{right}};
                {_LARGEST}
                npy_uint32 left; // the slope's bits, until a cell takes them: a choice would be a branch
                memcpy(&left, slopes + column, sizeof(left));
                for (int i = 0; i < {{high}}; ++i)
                    for (int j = 0; j < {{wide}}; ++j) {{{{
                        // in a window with nan, too
                        const npy_uint32 taken = left & -(npy_uint32)!(window[i * width + j] < best);
                        npy_float32 share;
                        memcpy(&share, &taken, sizeof(share));
                        gradients[i * width + column * {{right}} + j] {{put}} share;
                        left &= ~taken;
                    }}}}
            }}}}
        }}}}
    }}}}
    Py_DECREF(image);
    Py_DECREF(slope);
"""


class _Pool(theano.gof.OpenMPOp):  # type: ignore[misc]
    __props__ = ("size", "stride")

    def __init__(self, size: tuple[int, int], stride: tuple[int, int]) -> None:
        super().__init__(openmp=None)
        self.size, self.stride = size, stride

    def c_code_cache_version(self) -> tuple[int, ...]:
        return (5,)

    def _filled(self, code: str, **names: str) -> str:
        (high, wide), (down, right) = self.size, self.stride
        apart = down >= high and right >= wide
        filled = code.format(
            high=high, wide=wide, down=down, right=right, lengths="found", put="=" if apart else "+=",
            tiles=str(self.size == self.stride).lower(),
            parallel="#pragma omp parallel for schedule(static)" if self.openmp else "", **names,
        )  # fmt: skip
        return "{" + filled + "}"  # a block of its own: Theano's error exit jumps over what is declared


class FirstMaxPool(_Pool):
    """The largest of each window."""

    def make_node(self, x: Any) -> Any:
        return theano.gof.Apply(self, [x], [T.TensorType("float32", (*x.broadcastable[:2], False, False))()])

    def infer_shape(self, node: Any, shapes: Any) -> Any:
        rows, channels, height, width = shapes[0]
        (high, wide), (down, right) = self.size, self.stride
        return [(rows, channels, (height - high) // down + 1, (width - wide) // right + 1)]

    def L_op(self, inputs: Any, outputs: Any, output_gradients: Any) -> Any:
        return [FirstMaxPoolGradient(self.size, self.stride)(inputs[0], output_gradients[0])]

    def c_code(self, node: Any, name: str, inputs: Any, outputs: Any, sub: Any) -> str:
        return self._filled(_FORWARD, x=inputs[0], z=outputs[0], fail=sub["fail"])


class FirstMaxPoolGradient(_Pool):
    """Of images and of the pool's output gradient: the images' gradient."""

    def make_node(self, x: Any, slope: Any) -> Any:
        return theano.gof.Apply(self, [x, slope], [x.type()])

    def infer_shape(self, node: Any, shapes: Any) -> Any:
        return [shapes[0]]

    def c_code(self, node: Any, name: str, inputs: Any, outputs: Any, sub: Any) -> str:
        return self._filled(_BACKWARD, x=inputs[0], slope=inputs[1], z=outputs[0], fail=sub["fail"])
