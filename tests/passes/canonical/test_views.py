"""Reshapes and transposes in turns lose one of three where a transpose can move past a reshape."""

import pytest
from capgraph.passes.cleanup.canonicalize import Canonicalize

from tests.passes.checking import check_pass


def test_two_reshapes_around_a_transpose() -> None:
    check_pass(
        Canonicalize(),
        """
        graph @main(%x: f32[B, 3, T, 32]) {
          %a = reshape(%x) {shape = [3*B, T, 32]}
          %b = transpose(%a) {perm = [0, 2, 1]}
          %c = reshape(%b) {shape = [B, 3, 32, T]}
          return %c
        }""",
        """
        graph @main(%x: f32[B, 3, T, 32]) {
          %c = transpose(%x) {perm = [0, 1, 3, 2]}
          return %c
        }""",
    )


def test_the_keys_of_attention_are_transposed_once() -> None:
    check_pass(
        Canonicalize(),
        """
        graph @main(%x: f32[B, T, 96]) {
          %a = reshape(%x) {shape = [B, T, 3, 32]}
          %b = transpose(%a) {perm = [0, 2, 1, 3]}
          %c = reshape(%b) {shape = [3*B, T, 32]}
          %d = transpose(%c) {perm = [0, 2, 1]}
          %e = reshape(%d) {shape = [B, 3, 32, T]}
          return %e
        }""",
        """
        graph @main(%x: f32[B, T, 96]) {
          %a = reshape(%x) {shape = [B, T, 3, 32]}
          %e = transpose(%a) {perm = [0, 2, 3, 1]}
          return %e
        }""",
    )


def test_the_transpose_comes_last_where_only_that_joins_the_reshapes() -> None:
    check_pass(
        Canonicalize(),
        """
        graph @main(%x: f32[24, 35]) {
          %a = reshape(%x) {shape = [4, 6, 5, 7]}
          %b = transpose(%a) {perm = [1, 0, 2, 3]}
          %c = reshape(%b) {shape = [6, 4, 35]}
          return %c
        }""",
        """
        graph @main(%x: f32[24, 35]) {
          %a = reshape(%x) {shape = [4, 6, 35]}
          %c = transpose(%a) {perm = [1, 0, 2]}
          return %c
        }""",
    )


def test_two_transposes_around_a_reshape() -> None:
    check_pass(
        Canonicalize(),
        """
        graph @main(%x: f32[B, C, H, W]) {
          %a = transpose(%x) {perm = [0, 2, 3, 1]}
          %b = reshape(%a) {shape = [B, H*W, C]}
          %c = transpose(%b) {perm = [0, 2, 1]}
          return %c
        }""",
        """
        graph @main(%x: f32[B, C, H, W]) {
          %c = reshape(%x) {shape = [B, C, H*W]}
          return %c
        }""",
    )


def test_axes_of_size_one_have_one_place() -> None:
    check_pass(
        Canonicalize(),
        """
        graph @main(%x: f32[T, 96], %y: f32[1, T, 96]) {
          %a = reshape(%x) {shape = [T, 1, 3, 32]}
          %b = transpose(%a) {perm = [1, 2, 0, 3]}
          %c = transpose(%y) {perm = [2, 0, 1]}
          %d = reshape(%c) {shape = [96*T]}
          return %b, %d
        }""",
        """
        graph @main(%x: f32[T, 96], %y: f32[1, T, 96]) {
          %a = reshape(%x) {shape = [1, T, 3, 32]}
          %b = transpose(%a) {perm = [0, 2, 1, 3]}
          %c = transpose(%y) {perm = [0, 2, 1]}
          %d = reshape(%c) {shape = [96*T]}
          return %b, %d
        }""",
    )


@pytest.mark.parametrize(
    "body",
    [
        # The windows of a Swin block: axes that the reshapes cut and join are torn apart.
        "%a = reshape(%x) {shape = [4, 2, 3, 5]}\n %b = transpose(%a) {perm = [0, 2, 1, 3]}\n"
        "%c = reshape(%b) {shape = [12, 10]}\n return %c",
        # What is in between is read as well.
        "%a = reshape(%x) {shape = [8, 3, 5]}\n %b = transpose(%a) {perm = [1, 2, 0]}\n"
        "%c = reshape(%b) {shape = [15, 8]}\n return %c, %b",
        "%a = reshape(%x) {shape = [8, 3, 5]}\n %b = transpose(%a) {perm = [1, 2, 0]}\n"
        "%c = reshape(%b) {shape = [15, 8]}\n return %c, %a",
    ],
)
def test_stays(body: str) -> None:
    check_pass(Canonicalize(), f"graph @main(%x: f32[8, 15]) {{ {body} }}", None)
