"""HTTP to the local server: straight to its current port, with its key, whatever the environment says."""

import json

import httpx

from signoff.models.local.server import LocalServer

# A connection that outlives its event loop breaks the next one; on loopback a new one costs nothing.
_LIMITS = httpx.Limits(max_keepalive_connections=0)


class _Transport(httpx.HTTPTransport):
    def __init__(self, server: LocalServer) -> None:
        super().__init__(limits=_LIMITS, trust_env=False)
        self._server = server

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        _aim(request, self._server)
        response = super().handle_request(request)
        if response.status_code == httpx.codes.BAD_REQUEST:
            return _as_openai(response, response.read())
        return response


class _AsyncTransport(httpx.AsyncHTTPTransport):
    def __init__(self, server: LocalServer) -> None:
        super().__init__(limits=_LIMITS, trust_env=False)
        self._server = server

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        _aim(request, self._server)
        response = await super().handle_async_request(request)
        if response.status_code == httpx.codes.BAD_REQUEST:
            return _as_openai(response, await response.aread())
        return response


def _aim(request: httpx.Request, server: LocalServer) -> None:
    """Send the request to where the server is now, without anything the environment added for OpenAI."""
    endpoint = server.endpoint
    if endpoint is None:
        raise httpx.ConnectError("The local model's server has ended.", request=request)
    request.url = request.url.copy_with(port=endpoint.port)
    for name in [name for name in request.headers if name.startswith("openai-")]:
        del request.headers[name]
    request.headers.update({**endpoint.headers, "Host": f"127.0.0.1:{endpoint.port}"})


def _as_openai(response: httpx.Response, body: bytes) -> httpx.Response:
    """A prompt that is too long, named as OpenAI names it: LangChain knows it by that name."""
    answer = json.loads(body)
    error = answer["error"]
    if error["type"] == "exceed_context_size_error":
        error.update(code="context_length_exceeded", message=f"context_length_exceeded: {error['message']}")
    return httpx.Response(response.status_code, json=answer)


def sync_client(server: LocalServer) -> httpx.Client:
    """A client for `server`."""
    return httpx.Client(transport=_Transport(server), trust_env=False)


def async_client(server: LocalServer) -> httpx.AsyncClient:
    """A client for `server`, usable from one event loop after another."""
    return httpx.AsyncClient(transport=_AsyncTransport(server), trust_env=False)
