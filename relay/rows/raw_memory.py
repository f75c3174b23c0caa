"""Memory by address, for compiled code: load, store, copy, and call librdkafka's functions.

numba's cache on disk does not notice a change of this file for the kernels that use it: whoever
changes it touches them too.
"""

from __future__ import annotations

from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

_WORD = ir.IntType(64)
_BYTES = ir.IntType(8).as_pointer()


def compiled(function):
    """Compile when first used, cached by numba, and run without the GIL."""
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no directory for the cache can be written: compiled at every start
        return njit(nogil=True)(function)


def _load(bits, result):
    """An intrinsic that gives the number of so many bits at an address (little-endian)."""

    def typed(typing_context, address):
        def load(context, builder, signature, arguments):
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            number = builder.load(pointer, align=1)
            return number if bits == result.bitwidth else builder.zext(number, _WORD)

        return result(address), load

    return intrinsic(typed)


byte = _load(8, types.int64)
half = _load(32, types.uint64)
word = _load(64, types.uint64)
integer = _load(64, types.int64)


@intrinsic
def address(typing_context, array):
    """Return where an array's first item is."""

    def find(context, builder, signature, arguments):
        made = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(made.data, _WORD)

    return types.int64(array), find


def _store(bits):
    """An intrinsic that writes so many bits of a number to an address (little-endian)."""

    def typed(typing_context, address, number):
        def written(context, builder, signature, arguments):
            kind = ir.IntType(bits)
            value = arguments[1] if bits == _WORD.width else builder.trunc(arguments[1], kind)
            pointer = builder.inttoptr(arguments[0], kind.as_pointer())
            builder.store(value, pointer, align=1)
            return context.get_dummy_value()

        return types.void(address, number), written

    return intrinsic(typed)


store_byte = _store(8)
store_half = _store(32)
store = _store(64)


@intrinsic
def lowest_bit(typing_context, number):
    """Return which bit of a number is the lowest that is set; meaningless of zero."""

    def found(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(number), found


@intrinsic
def copy(typing_context, to, start, size):
    """Copy between addresses, as memcpy."""

    def copied(context, builder, signature, arguments):
        written, read = (builder.inttoptr(one, _BYTES) for one in arguments[:2])
        cgutils.raw_memcpy(builder, written, read, arguments[2], 1, align=1)
        return context.get_dummy_value()

    return types.void(to, start, size), copied


def _called(builder, function, arguments, result):
    kind = ir.FunctionType(result, [_WORD] * len(arguments))
    return builder.call(builder.inttoptr(function, kind.as_pointer()), arguments)


@intrinsic
def call_1(typing_context, function, first):
    """Call a C function that takes one address and gives nothing."""

    def call(context, builder, signature, arguments):
        _called(builder, arguments[0], arguments[1:], ir.VoidType())
        return context.get_dummy_value()

    return types.void(function, first), call


@intrinsic
def call_2(typing_context, function, first, second):
    """Call a C function that takes two addresses and gives an int."""

    def call(context, builder, signature, arguments):
        return builder.sext(_called(builder, arguments[0], arguments[1:], ir.IntType(32)), _WORD)

    return types.int64(function, first, second), call


@intrinsic
def call_5(typing_context, function, first, second, third, fourth, fifth):
    """Call a C function that takes five addresses or numbers and gives an int."""

    def call(context, builder, signature, arguments):
        return builder.sext(_called(builder, arguments[0], arguments[1:], ir.IntType(32)), _WORD)

    return types.int64(function, first, second, third, fourth, fifth), call
