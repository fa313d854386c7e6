"""Products of 8-bit queries with 4-bit keys, 64 keys at a time, in the CPU's own instructions.

`dot_block` is an LLVM intrinsic for numba. It uses AVX-512 VNNI or AVX2 where the CPU has them and
plain vector code elsewhere; all three give the same integers.

Codes of a block are stored as (d / 8, 64 keys, 4) bytes. The low half of byte t of chunk i is
dimension 8 i + t of the key, the high half dimension 8 i + 4 + t.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

BLOCK = 64
CHUNK_BYTES = 4 * BLOCK
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


def _lanes(features: str) -> int:
    """Number of 32-bit sums of a vector register."""
    return 16 if "+avx512vnni" in features else 8


def _splat(builder: Any, value: Any, lanes: int) -> Any:
    """Vector of equal numbers."""
    kind = ir.VectorType(value.type, lanes)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    zeros = ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), zeros)


def _add_products(builder: Any, features: str, total: Any, codes: Any, query: Any) -> Any:
    """Add to each 32-bit sum the products of four unsigned bytes with four signed ones."""
    lanes = total.type.count
    words, octets = ir.VectorType(I32, lanes), ir.VectorType(I8, 4 * lanes)

    def call(name: str, result: Any, *args: Any) -> Any:
        kind = ir.FunctionType(result, [arg.type for arg in args])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)

    if "+avx512vnni" in features:
        name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
        return call(name, words, total, builder.bitcast(codes, words), query)
    if "+avx2" in features:
        halves = ir.VectorType(I16, 2 * lanes)
        query = builder.bitcast(query, octets)
        pairs = call("llvm.x86.avx2.pmadd.ub.sw", halves, codes, query)  # at most 2 * 15 * 127
        ones = ir.Constant(halves, [1] * 2 * lanes)
        return builder.add(total, call("llvm.x86.avx2.pmadd.wd", words, pairs, ones))
    wide = ir.VectorType(I32, 4 * lanes)
    query = builder.sext(builder.bitcast(query, octets), wide)
    product = builder.mul(builder.zext(codes, wide), query)
    for place in range(4):
        pick = ir.Constant(words, [4 * lane + place for lane in range(lanes)])
        every = builder.shuffle_vector(product, ir.Constant(wide, ir.Undefined), pick)
        total = builder.add(total, every)
    return total


def emit_dot_block(
    builder: Any, features: str, codes: Any, query: Any, chunks: Any, out: Any
) -> None:
    """Write the code of `dot_block`, from pointers to the block's codes, the query and the sums."""
    lanes = _lanes(features)
    size = 4 * lanes
    words, octets = ir.VectorType(I32, lanes), ir.VectorType(I8, size)
    numbers = builder.bitcast(query, I32.as_pointer())
    mask, four = ir.Constant(octets, [15] * size), ir.Constant(octets, [4] * size)
    zeros = ir.Constant(words, [0] * lanes)
    totals = [cgutils.alloca_once_value(builder, zeros) for _ in range(BLOCK // lanes)]
    with cgutils.for_range(builder, chunks) as loop:
        first = builder.shl(loop.index, ir.Constant(I64, 1))
        second = builder.add(first, ir.Constant(I64, 1))
        low, high = (
            _splat(builder, builder.load(builder.gep(numbers, [place])), lanes)
            for place in (first, second)
        )
        start = builder.mul(loop.index, ir.Constant(I64, CHUNK_BYTES))
        for number, total in enumerate(totals):
            place = builder.add(start, ir.Constant(I64, size * number))
            pointer = builder.bitcast(builder.gep(codes, [place]), octets.as_pointer())
            both = builder.load(pointer)
            both.align = 1
            sums = builder.load(total)
            sums = _add_products(builder, features, sums, builder.and_(both, mask), low)
            sums = _add_products(builder, features, sums, builder.lshr(both, four), high)
            builder.store(sums, total)
    for number, total in enumerate(totals):
        pointer = builder.gep(out, [ir.Constant(I64, lanes * number)])
        builder.store(builder.load(total), builder.bitcast(pointer, words.as_pointer())).align = 4


def make_dot_block(features: str | None = None) -> Any:
    """Return `dot_block` for a CPU with some features, those of this one by default."""

    @intrinsic
    def dot_block(typing: Any, codes: Any, block: Any, query: Any, chunks: Any, out: Any) -> Any:
        """Set out[:64] to the products of a query (d,) with one of the blocks of codes."""
        signature = types.void(codes, types.intp, query, types.intp, out)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = [
                context.make_array(signature.args[place])(context, builder, args[place]).data
                for place in (0, 2, 4)
            ]
            own = context.codegen()._tm_features if features is None else features
            size = builder.mul(args[3], ir.Constant(I64, CHUNK_BYTES))
            start = builder.gep(data[0], [builder.mul(args[1], size)])
            emit_dot_block(builder, own, start, data[1], args[3], data[2])
            return context.get_dummy_value()

        return signature, codegen

    return dot_block


LINE = 64
"""Bytes that memory moves at once."""


@intrinsic
def prefetch(typing: Any, array: Any, start: Any, count: Any) -> Any:
    """Have the memory of `count` entries of a contiguous array fetched, from flat index `start`."""
    signature = types.void(array, types.intp, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        size = ir.Constant(I64, context.get_abi_sizeof(data.type.pointee))
        pointer = builder.bitcast(builder.gep(data, [args[1]]), I8.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        lines = builder.udiv(
            builder.add(builder.mul(args[2], size), ir.Constant(I64, LINE - 1)),
            ir.Constant(I64, LINE),
        )
        # To be read, kept in every cache, and data.
        how = [ir.Constant(I32, number) for number in (0, 3, 1)]
        with cgutils.for_range(builder, lines) as loop:
            place = builder.mul(loop.index, ir.Constant(I64, LINE))
            builder.call(fetch, [builder.gep(pointer, [place]), *how])
        return context.get_dummy_value()

    return signature, codegen


dot_block = make_dot_block()
