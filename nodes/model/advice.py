"""Explains a provider's error: what it says, whether it is transient, and what to do about it."""

import html
import json
import re
from collections.abc import Collection, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from langchain_core.exceptions import ContextOverflowError
from langchain_core.runnables import Runnable
from pydantic import SecretStr, ValidationError

from signoff.graph import clock
from signoff.graph.foreign import valid_text
from signoff.nodes.model.faults import EMPTY_STREAM, FULL_CONTEXT, NO_STREAM, REFUSED_CALL, TEMPORARY

_LENGTH = 500
_SHORTEST_SECRET = 6
_NO_TOOLS = re.compile(
    r"(?:support|enabled?\b).{0,40}\b(?:tool|function)|(?:tool|function)s?\b.{0,60}\b(?:not (?:been )?"
    r"(?:supported|enabled)|unsupported)|(?:unsupported|unknown|unrecognized).{0,40}\btools?\b"
    r"|tool choice requires|tool use is|requires? --(?:jinja|enable-auto-tool-choice)",
    re.IGNORECASE | re.DOTALL,
)
_FILTER = re.compile(r"content.?(?:filter|management policy)|data_inspection_failed", re.IGNORECASE)
_QUOTA = re.compile(
    r"insufficient_quota|insufficient.{0,10}(?:balance|credit)|billing_hard_limit|credit balance is too low",
    re.IGNORECASE,
)
_TLS = re.compile(r"ssl|certificate|tls", re.IGNORECASE)
_UNKNOWN_HOST = re.compile(
    r"name or service not known|name resolution|nodename nor servname|getaddrinfo|no address associated",
    re.IGNORECASE,
)
# 424 is what Bedrock calls a fault of a stream before it has begun.
_PASSING = (408, 409, 424, 429)
_CODES = ("code", "type", "status")
# What the provider calls the fault stands only in the text where langchain-openai, botocore or
# langchain-openrouter has made it of an event.
_CODE_IN_TEXT = re.compile(
    r"^([a-z_]+): |ResponseError\(code='(\w+)'|An error occurred \((\w+)\)|\(code: (\w+)\)"
)
_LATE_NAMES = {"APITimeoutError", "ModelTimeoutError", "TimeoutException", "TimeoutError"}
_CONNECTION_NAMES = {
    "APIConnectionError",
    "ModelConnectionError",
    "ClientConnectionError",
    "ConnectionError",
    "NetworkError",
}
_DELAY = re.compile(r"'retryDelay': '([0-9]+(?:\.[0-9]+)?)s'")
_REFUSALS = (None, 400, 404, 413, 422, 429, 500, 501)
_NO_CREDIT = (
    "The account's quota or credit is used up, and waiting does not help: add credit, or use another key or "
    "model"
)
_FILTERED = "The provider's content filter stopped the request: write what you want in other words"
_LATE = "The provider did not answer in time: wait a while, or set a longer timeout for the model"
_BY_STATUS = {
    400: "The provider rejects the request: change the model or the setting that it names",
    401: "The API key is missing or wrong: set the right one",
    403: "The API key may not use this model: check the key's rights or choose another model",
    404: "There is no such model or address: check --model and --base-url, or what your code passes for them",
    408: _LATE,
    413: "The prompt is larger than the model's context: shorten the task or its files, or use a model with "
    "a larger context",
    429: "The provider's rate limit is reached: wait a while, or use fewer runs at once",
    504: _LATE,
}
_BAD_KEY = re.compile(r"api key not (?:valid|found)", re.IGNORECASE)
_VARIABLES = {
    "anthropic": " (for Anthropic the variable ANTHROPIC_API_KEY)",
    "google": " (for Google the variable GOOGLE_API_KEY)",
    "groq": " (for Groq the variable GROQ_API_KEY)",
    "openai": " (for OpenAI the variable OPENAI_API_KEY)",
}
_BROKEN = "The provider has a fault or too much to do, and trying again did not help: wait a while"
_CUT = "The connection broke off in the middle of the answer; nothing of it is kept"
_CUTS = {
    "RemoteProtocolError",
    "ReadError",
    "ClientPayloadError",
    "ConnectionAbortedError",
    "ConnectionResetError",
}
_NO_TLS = (
    "No secure connection: check http or https in the base URL, and that this machine trusts the server's "
    "certificate (SSL_CERT_FILE)"
)
_NO_HOST = "There is no host with that name: check the base URL and the network"
_UNREACHABLE = "The provider cannot be reached: check the network and the base URL, or start the server"
_UNREADABLE = (
    "The server's answer is not that of such a model: check the base URL (it often ends in /v1), and what "
    "stands between here and the server"
)
_MESSAGES = ("message", "error", "detail")
_MASK = "[hidden]"
_CARRIES_KEY = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
_SECRETS = (
    re.compile(r"(?i)(\b(?:bearer|basic)\s+)[^\s'\",;)}]+"),
    re.compile(
        r"(?i)((?:api[-_ ]?key|x-goog-api-key|access[-_]?token|secret)[\"']?\s*[=:]\s*[\"']?)[^\s'\",;&)}]+"
    ),
    re.compile(r"()\b(?:sk|pk|gsk|xai|hf|nvapi|pplx|r8|fw|csk)[-_][A-Za-z0-9*_-]{8,}"),
    re.compile(r"()\bAIza[A-Za-z0-9_-]{10,}"),
    re.compile(r"(://)[^/\s@'\"]+(?=@)"),
    re.compile(r"([?&]key=)[^&\s'\"]+"),
)


def is_too_long(error: BaseException) -> bool:
    """Whether the prompt did not fit into the model's context."""
    status = _status(error)
    if status == 413 or isinstance(error, ContextOverflowError):
        return True
    return status in _REFUSALS and bool(FULL_CONTEXT.search(_words(error)))


def refuses_call(error: BaseException) -> bool:
    """Whether the provider has refused what the model answered, for a call in it or for want of one."""
    return bool(REFUSED_CALL.search(_words(error)))


def refuses_stream(error: BaseException) -> bool:
    """Whether the provider answers this request, but not in a stream."""
    status, said = _status(error), _words(error)
    if status == 501:
        return not _NO_TOOLS.search(said)
    return status in (*_REFUSALS, 403) and bool(NO_STREAM.search(said))


def is_empty_stream(error: BaseException) -> bool:
    """Whether the provider's stream has ended with nothing in it."""
    return bool(EMPTY_STREAM.search(_words(error)))


def refuses(error: BaseException) -> bool:
    """Whether it says that the model refused. By name, since not every langchain-core has the class."""
    return "ModelRefusalError" in _names(error)


def may_pass(error: BaseException) -> bool:
    """Whether the same call may succeed a little later: after a rate limit, a server error, a lost
    connection."""
    return _verdict(error).passes


def may_refuse_content(error: BaseException) -> bool:
    """Whether the provider, or its package, may have refused what is in the prompt, such as a picture."""
    verdict = _verdict(error)
    is_other = verdict.passes or verdict.says_why
    return not is_other and _status(error) in (None, 400, 413, 415, 422)


def in_short(error: BaseException) -> str:
    """The error in a few words: `rate limit`, `error 503`, `the connection broke off`."""
    status = _status(error)
    if status in (408, 504) or (status is None and _is_late(error)):
        return "no answer in time"
    if status is not None:
        return "rate limit" if status == 429 else f"error {status}"
    if _is_cut(error):
        return "the connection broke off"
    return _temporary(error) or ("no connection" if _is_unreachable(error) else type(error).__name__)


def retry_after(error: BaseException) -> float | None:
    """Seconds that the provider asks to wait: by a header, or in the body as Google does it."""
    milliseconds, seconds = _header(error, "retry-after-ms"), _header(error, "retry-after")
    for given, unit in ((milliseconds, 0.001), (seconds, 1.0)):
        try:
            return max(0.0, float(given) * unit)
        except ValueError:
            continue
    try:
        return max(0.0, parsedate_to_datetime(seconds).timestamp() - clock.now())
    except ValueError:
        return _delay(error)


def _delay(error: BaseException) -> float | None:
    for body in (body for cause in _causes(error) for body in _bodies(cause)):
        if match := _DELAY.search(str(body)):
            return float(match[1])
    return None


def _header(error: BaseException, name: str) -> str:
    for cause in _causes(error):
        headers = getattr(getattr(cause, "response", None), "headers", None)
        if isinstance(headers, Mapping) and isinstance(found := headers.get(name), str):
            return found.strip().lower()
    return ""


def _temporary(error: BaseException) -> str:
    """What a fault is that its provider says passes, such as one in a stream, which had the status 200."""
    return next((why for why, codes in TEMPORARY.items() if codes.search(_words(error))), "")


def _codes(error: BaseException) -> list[str]:
    """What the provider calls this error, apart from those that it was made of."""
    codes = [getattr(error, key, None) for key in ("status_code", *_CODES)]
    for body in _bodies(error):
        parts = [part for part in (body, body.get("error")) if isinstance(part, Mapping)]
        codes += [part.get(key) for part in parts for key in _CODES]
        codes += [f"param {part['param']}" for part in parts if part.get("param")]
    codes += [match[match.lastindex or 0] for match in _CODE_IN_TEXT.finditer(str(error))]
    return [str(code) for code in codes if isinstance(code, str | int)]


def _bodies(error: BaseException) -> list[Mapping[str, Any]]:
    """The bodies of the provider's answer, as its package gives them."""
    bodies = (getattr(error, "body", None), getattr(error, "details", None), *error.args)
    return [body for body in map(_parsed, bodies) if isinstance(body, Mapping)]


def _parsed(body: object) -> object:
    """The body of an answer, or the event of a stream, of which OpenRouter's package gives the text, and
    Mistral's a text that ends with it."""
    if not isinstance(body, str) or "{" not in body:
        return body
    try:
        answer = json.loads(body[body.index("{") :])
    except (ValueError, RecursionError):
        return body
    return answer.get("data") or answer


def _is_late(error: BaseException) -> bool:
    return bool(_names(error) & _LATE_NAMES)


def _is_cut(error: BaseException) -> bool:
    return any(kind.__name__ in _CUTS for cause in _causes(error) for kind in type(cause).__mro__)


def _is_unreachable(error: BaseException) -> bool:
    return bool(_names(error) & _CONNECTION_NAMES)


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _words(error: BaseException) -> str:
    """What the provider says, and what it calls the error, each of these in brackets."""
    codes = [f"[{code}]" for cause in _causes(error, handled=False) for code in _codes(cause)]
    return " ".join([_provider_words(error), *codes])


def advise(error: BaseException, secrets: Collection[str] = ()) -> str:
    """The provider's message, and what to do so that the thread can be retried. `secrets`, and what looks
    like one, are never included: a server can echo the request's headers."""
    said = masked(_provider_words(error) or "no message", secrets)
    status = _status(error)
    kind = f"{type(error).__name__} ({status})" if status else type(error).__name__
    shown = said if len(said) <= _LENGTH else said[: _LENGTH - 1] + "…"
    return f"{kind}: {shown.rstrip('.')}. {_verdict(error).advice}; then go on: everything so far is saved."


def masked(text: str, secrets: Collection[str] = ()) -> str:
    """`text` without `secrets`, and without what looks like one."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, _MASK)
    for pattern in _SECRETS:
        text = pattern.sub(rf"\1{_MASK}", text)
    return text


def secrets_of(*models: Any) -> frozenset[str]:
    """The keys that these models hold, and what they are made of: secret fields, headers that carry a key."""
    found, left, seen = set[str](), list(models), list[Any]()
    while left:
        model = left.pop()
        if any(model is known for known in seen):
            continue
        seen.append(model)
        for name, value in getattr(model, "__dict__", {}).items():
            if isinstance(value, SecretStr):
                found.add(value.get_secret_value())
            elif "header" in name and isinstance(value, Mapping):
                told = [str(part) for header, part in value.items() if _CARRIES_KEY.search(str(header))]
                found.update(word for part in told for word in part.split())
            elif isinstance(value, Runnable):
                left.append(value)
    return frozenset(found)


class _Verdict(NamedTuple):
    """What an error means. advice: what to do. passes: whether the same call may succeed a little later.
    says_why: it says itself why it does not, which has nothing to do with what is in the prompt."""

    advice: str
    passes: bool = False
    says_why: bool = False


def _verdict(error: BaseException) -> _Verdict:
    status, said = _status(error), _words(error)
    if is_too_long(error):
        return _Verdict(_BY_STATUS[413])
    if refuses_call(error):
        return _Verdict(_BY_STATUS[400])
    if status == 402 or _QUOTA.search(said):
        return _Verdict(_NO_CREDIT, says_why=True)
    if status in _REFUSALS and _NO_TOOLS.search(said) and "schema" not in said.lower():
        return _Verdict(
            "The model or its server does not support tool calling: use one that does", says_why=True
        )
    if status in _REFUSALS and _FILTER.search(said):
        return _Verdict(_FILTERED, says_why=True)
    return _without_status(error, said) if status is None else _by_status(error, said, status)


def _by_status(error: BaseException, said: str, status: int) -> _Verdict:
    passes = status in _PASSING or (status >= 500 and status != 501)
    if (again := _header(error, "x-should-retry")) in ("true", "false"):
        passes = again == "true"
    if status == 401 or (status == 400 and _BAD_KEY.search(said)):
        return _Verdict(f"{_BY_STATUS[401]}{_variable(error)}", passes)
    return _Verdict(_BY_STATUS.get(status, _BROKEN if status >= 500 else _BY_STATUS[400]), passes)


def _without_status(error: BaseException, said: str) -> _Verdict:
    if refuses(error):
        return _Verdict(
            "The model refuses this task: write what you want in other words, or use another model"
        )
    if _temporary(error):
        return _Verdict(_UNREADABLE if is_empty_stream(error) else _BROKEN, passes=True)
    if _is_late(error):
        return _Verdict(_BY_STATUS[408], passes=True)
    if _is_cut(error):
        return _Verdict(_CUT, passes=True)
    if _is_unreachable(error):
        if _TLS.search(said):
            return _Verdict(_NO_TLS, says_why=True)
        if _UNKNOWN_HOST.search(said):
            passes = "temporary failure" in said.lower()
            return _Verdict(_NO_HOST, passes, says_why=True)
        return _Verdict(_UNREACHABLE, passes=True)
    # LangChain's own word for it.
    passes = bool(getattr(error, "is_retryable", False))
    is_unreadable = isinstance(error, ValidationError | ValueError | LookupError | TypeError | AttributeError)
    return _Verdict(_UNREADABLE if is_unreadable else "Find the cause in the message", passes)


def _variable(error: BaseException) -> str:
    """The variable that holds the key, where the error is of a package whose variable is known."""
    roots = {kind.__module__.split(".")[0] for each in _causes(error) for kind in type(each).__mro__}
    return next((said for root, said in _VARIABLES.items() if root in roots), "")


def _causes(error: BaseException, *, handled: bool = True) -> list[BaseException]:
    """The error, and those that it was made of; handled: or that were being handled when it was raised."""
    found = list[BaseException]()
    cause: BaseException | None = error
    while cause is not None and cause not in found:
        found.append(cause)
        cause = cause.__cause__ or (cause.__context__ if handled else None)
    return found


def _origin(error: BaseException) -> BaseException:
    """The error that carries the provider's answer: this one, or the one that it was made of."""
    made_of = _causes(error, handled=False)
    return next((cause for cause in made_of if _own_status(cause) is not None), error)


def _status(error: BaseException) -> int | None:
    """The HTTP status of the provider's answer, as its package tells it."""
    # To a connection that broke off aiohttp gives the status 400.
    return None if _is_cut(error) else _own_status(_origin(error))


def _own_status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        response = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    told = [*_codes(error), getattr(response, "status_code", response)]
    found = (int(one) for one in told if isinstance(one, int | str) and str(one).isdecimal())
    return next((one for one in found if 400 <= one < 600), None)


def _provider_words(error: BaseException) -> str:
    """The provider's own words; for a failing connection those of the cause below."""
    error = _origin(error)
    told = [*_bodies(error), getattr(error, "body", None), getattr(error, "details", None)]
    text = next(filter(None, map(_message, told)), "") or re.sub(r"^Error code: \d+ - ", "", str(error))
    if _status(error) is None:
        below = [str(cause) for cause in _causes(error)[1:]]
        text = text.rstrip(".") + "".join(f" ({words})" for words in below[-1:] if words not in text)
    if re.search(r"<html|<!doctype", text, re.IGNORECASE):
        text = html.unescape(re.sub(r"(?is)<(script|style)\b.*?</\1>|<[^>]*>", " ", text))
    return " ".join(valid_text(text).split())


def _message(body: Any) -> str:
    """The message in the body of an error: `{"error": {"message": …}}` and its relatives."""
    if isinstance(body, Mapping) and isinstance(body.get("msg"), str) and isinstance(body.get("loc"), list):
        return f"{'.'.join(map(str, body['loc']))}: {body['msg']}"
    if isinstance(body, Mapping):
        return next((said for key in _MESSAGES if (said := _message(body.get(key)))), "")
    if isinstance(body, list):
        return "; ".join(filter(None, map(_message, body)))
    return body if isinstance(body, str) else ""
