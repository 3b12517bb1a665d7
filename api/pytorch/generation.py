"""`capgraph.decoding_loop`: a loop for transformers' `generate` in which a whole token is one recording."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..ir.errors import UnsupportedError
from .backend import backend
from .decoding_step import OPTIONS, step_for

READ_EVERY = 16
"""After how many tokens the host looks whether all texts have ended; it sees how that was at the look before."""

_GRAPHS = 64
"""How many graphs Dynamo may make of a step: one or two for each model, number of texts, and way to choose tokens."""

_REMEDY = "leave custom_generate out: transformers' own loop does it, and takes CompileConfig(backend='capgraph')"
_WARPERS = {"TemperatureLogitsWarper": "temperature", "TopKLogitsWarper": "top_k", "TopPLogitsWarper": "top_p"}
_CRITERIA = ("MaxLengthCriteria", "EosTokenCriteria")
_GIVEN = {"attention_mask", "logits_to_keep", "past_key_values", "position_ids", "use_cache"}


def decoding_loop(
    model: Any,
    input_ids: Any,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    synced_gpus: bool = False,
    streamer: Any = None,
    **model_kwargs: Any,
) -> Any:
    """Prompts i64[batch, tokens] with what a decoder-only model of transformers writes behind them, i64[batch, length].

        model.generate(**inputs, cache_implementation="static", custom_generate=capgraph.decoding_loop)

    A token is one call of one recording: the model, temperature, top-k and top-p, the draw, and the test whether a text
    has ended. The host starts one after another and looks only now and then, without waiting, whether all have ended.
    The numbers that decide are drawn before, by PyTorch's generator: drawn tokens are distributed as in transformers'
    own loop, but a seed gives others. Raises `UnsupportedError` for what such a step does not do: beams, streams,
    scores, caches that grow or have content, inputs other than tokens, other processors of logits and criteria.
    """
    cache = model_kwargs.get("past_key_values")
    has_others = synced_gpus or streamer is not None or bool(model_kwargs.keys() - _GIVEN)
    _refuse(model, cache, generation_config, stopping_criteria, has_others)
    sampling = _sampling(logits_processor, generation_config)
    with torch.no_grad():
        given = model.prepare_inputs_for_generation(input_ids, is_first_iteration=True, **model_kwargs)
        logits = model(**given, return_dict=True).logits[:, -1]
        texts = _begun(input_ids, model_kwargs, generation_config, sampling)
        texts.write(logits)
        _write_others(model, cache, texts, generation_config.max_length)
    return texts.tokens[:, : int(texts.longest)].clone()


@dataclass
class Texts:
    """Texts on a device, and how they go on. Steps write to `tokens`, `count`, `longest` and `are_open` in place.

    `tokens` i64[batch, length] has `count` i64[] written, up to `longest` i64[] while a text was open; `are_open`
    bool[batch] are those that have not ended. `mask` i64[batch, length - 1] is 0 where a text has no token,
    before its prompt: position p of `tokens` is its token p - `padding` i64[batch]. `ends` i64[n] end a text, `pad`
    i64[] follows. `sampling` is None for the likeliest tokens, else the arguments of `drawn` with a chance for each
    position, f32[batch, length].
    """

    tokens: Any
    count: Any
    longest: Any
    are_open: Any
    mask: Any
    padding: Any
    ends: Any
    pad: Any
    sampling: tuple[Any, ...] | None

    def write(self, logits: Any) -> None:
        """Puts the next token behind each text, by logits [batch, vocabulary]."""
        if self.sampling is None:
            token = torch.argmax(logits, dim=-1)
        else:
            temperature, top_k, top_p, chances = self.sampling
            token = drawn(logits, temperature, top_k, top_p, chances.index_select(1, self.count[None])[:, 0])
        token = torch.where(self.are_open, token, self.pad)
        self.tokens.index_copy_(1, self.count[None], token[:, None])
        self.count.add_(1)
        self.longest.copy_(torch.where(self.are_open.any(), self.count, self.longest))
        self.are_open.logical_and_((token[:, None] != self.ends).all(-1))


def _write_others(model: Any, cache: Any, texts: Texts, length: int) -> None:
    """All tokens but the first, until texts have `length`."""
    if int(texts.count) == length:
        return
    looks, step = _Looks(texts.are_open), step_for(_step, model, cache, texts)
    with torch._dynamo.config.patch(recompile_limit=_GRAPHS):
        for index in range(int(texts.count), length):
            if index % READ_EVERY == 0 and looks.saw_none():
                break
            if step is None:
                _compiled_step(model, cache, texts)
            else:
                step(cache, texts)


def _step(model: Any, cache: Any, texts: Texts) -> None:
    latest = texts.count[None] - 1
    logits = model(
        input_ids=texts.tokens.index_select(1, latest),
        attention_mask=texts.mask,
        position_ids=latest - texts.padding[:, None],
        past_key_values=cache,
        use_cache=True,
        return_dict=True,
    ).logits
    texts.write(logits[:, -1])


_compiled_step = torch.compile(_step, backend=backend, options=OPTIONS, fullgraph=True)


class _Looks:
    """Looks at flags on a device without waiting for it: what is seen is what they were at the look before."""

    def __init__(self, flags: Any) -> None:
        self._flags = flags
        self._seen = torch.ones(flags.shape, dtype=flags.dtype, pin_memory=flags.is_cuda)
        self._event = torch.cuda.Event() if flags.is_cuda else None

    def saw_none(self) -> bool:
        if self._event is not None:
            self._event.synchronize()
        found = not self._seen.any()
        self._seen.copy_(self._flags, non_blocking=True)
        if self._event is not None:
            self._event.record()
        return found


def drawn(logits: Any, temperature: Any, top_k: Any, top_p: Any, chance: Any) -> Any:
    """One token a row, i64[batch], of logits [batch, vocabulary]: by the inverse of the cumulated probabilities.

    `temperature` f32[batch] divides the logits; at 0 or less the likeliest token is taken. Of the others the `top_k`
    i64[batch] likeliest are kept (all at 0 or less), and of these as many as it takes to reach the part `top_p`
    f32[batch] of their probability, the likeliest always. One number `chance` f32[batch] in [0, 1) a row decides.
    """
    temperature, top_k, top_p, chance = (each[:, None] for each in (temperature, top_k, top_p, chance))
    ordered, places = torch.sort(logits, dim=-1, descending=True)  # before they are f32: 16 bits take half the passes
    heat = torch.where(temperature > 0, temperature, 1.0)
    reached = torch.cumsum(torch.softmax(ordered.float() / heat, dim=-1), dim=-1)
    # What is kept is a number of the first ones in order, so that one cumulated sum serves both limits and the draw.
    count = logits.shape[-1]
    most = torch.clamp(torch.where(top_k > 0, top_k, count), max=count)
    wanted = top_p * torch.gather(reached, 1, most - 1)
    likely = torch.where(top_p < 1, 1 + (reached < wanted).sum(-1, keepdim=True), count)
    kept = torch.minimum(likely, most)
    wanted = chance * torch.gather(reached, 1, kept - 1)
    index = torch.minimum((reached <= wanted).sum(-1, keepdim=True), kept - 1)
    return torch.gather(places, 1, torch.where(temperature > 0, index, 0))[:, 0]


def _begun(prompts: Any, given: Mapping[str, Any], config: Any, sampling: Sequence[float] | None) -> Texts:
    """Texts that have their prompts."""
    (batch, count), place = prompts.shape, prompts.device
    last = max(given["past_key_values"].get_max_length(), config.max_length - 1)  # a sliding window holds less
    mask = torch.ones(batch, last, dtype=torch.int64, device=place)
    if given.get("attention_mask") is not None:
        mask[:, :count] = given["attention_mask"]
    positions = given.get("position_ids")
    padding = count - mask[:, :count].sum(-1) if positions is None else count - 1 - positions[:, -1]
    room = last + 1  # transformers keeps the longest cache, so that shorter texts are no others
    tokens = torch.zeros(batch, room, dtype=torch.int64, device=place)
    tokens[:, :count] = prompts
    ends, pad = config._eos_token_tensor, config._pad_token_tensor
    texts = Texts(
        tokens,
        torch.tensor(count, device=place),
        torch.tensor(count, device=place),
        torch.ones(batch, dtype=torch.bool, device=place),
        mask,
        padding,
        torch.tensor([-1], device=place) if ends is None else ends.reshape(-1),
        torch.tensor(0, device=place) if pad is None else pad,
        None if sampling is None else _limits(sampling, tokens),
    )
    for each in (texts.tokens, texts.count, texts.longest, texts.are_open):
        torch._dynamo.mark_static_address(each)
    return texts


def _limits(sampling: Sequence[float], tokens: Any) -> tuple[Any, ...]:
    dtypes = (torch.float32, torch.int64, torch.float32)
    limits = (
        torch.full(tokens.shape[:1], value, dtype=dtype, device=tokens.device)
        for value, dtype in zip(sampling, dtypes, strict=True)
    )
    return *limits, torch.rand(tokens.shape, device=tokens.device)


def _sampling(processors: Any, config: Any) -> tuple[float, int, float] | None:
    """Temperature, top-k and top-p; None where the likeliest token is taken. Raises for other processors."""
    found = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    for each in processors:
        name = _WARPERS.get(type(each).__name__)
        if name is None:
            raise UnsupportedError(f"{type(each).__name__} is no part of a recorded token", remedy=_REMEDY)
        found[name] = getattr(each, name)
    return (found["temperature"], int(found["top_k"]), found["top_p"]) if config.do_sample else None


def _refuse(model: Any, cache: Any, config: Any, criteria: Any, has_others: bool) -> None:
    """Raises for what is no part of a recorded token."""
    strange = [type(each).__name__ for each in criteria if type(each).__name__ not in _CRITERIA]
    asks_more = has_others or config.return_dict_in_generate or config.num_beams != 1 or config.prefill_chunk_size
    if strange:
        problem = f"{strange[0]} is no part of a recorded token"
    elif asks_more or model.config.is_encoder_decoder:
        problem = "a recorded token has no beams, streams, scores, encoders or other inputs than tokens"
    elif not getattr(cache, "is_compileable", False):
        problem = f"a {type(cache).__name__} grows with the text: ask for cache_implementation='static'"
    elif int(cache.get_seq_length()):
        problem = "the cache has content already"
    else:
        return
    raise UnsupportedError(problem, remedy=_REMEDY)
