"""Requests to the serving port of a scheduler process."""

from __future__ import annotations

import ssl

import aiohttp


def context(certificate=None):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        made.load_cert_chain(*certificate)
    return made


async def get(scheduler, path, *, certificate=None, **request):
    connector = aiohttp.TCPConnector(ssl=context(certificate), force_close=True)
    url = f"https://127.0.0.1:{scheduler.port}{path}"
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(url, **request) as answer,
    ):
        return answer.status, (await answer.read()).decode()
