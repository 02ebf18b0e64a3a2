"""Requests of a shared cache in S3, or what speaks like it: signed by botocore, with the credentials that it finds.

s3://bucket/prefix?region=eu-central-1&endpoint=https://minio.example:9000
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.session import Session

from kbuild.aot.environment import Remote
from kbuild.aot.remote.address import Address
from kbuild.aot.remote.http_store import Http, Sign
from kbuild.errors import UsageError

_REGION = "us-east-1"


def s3_store(address: Address, remote: Remote) -> Http:
    """The bucket of an address.  Raises UsageError where there are no credentials."""
    environment = remote.environment
    region = (
        address.query.get("region")
        or environment.get("AWS_REGION")
        or environment.get("AWS_DEFAULT_REGION")
        or _REGION
    )
    endpoint = (
        address.query.get("endpoint")
        or environment.get("AWS_ENDPOINT_URL_S3")
        or environment.get("AWS_ENDPOINT_URL")
        or f"https://s3.{region}.amazonaws.com"
    )
    url = "/".join(part for part in (endpoint.rstrip("/"), address.host, address.path) if part)
    return Http(replace(address, url=url), remote, _signer(region))


def _signer(region: str) -> Sign:
    credentials = Session().get_credentials()
    if credentials is None:
        raise UsageError(
            "no credentials for S3 were found",
            help="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; a public bucket is read by https://",
        )

    def sign(method: str, url: str, body: bytes) -> Mapping[str, str]:
        request = AWSRequest(method, url, data=body)
        S3SigV4Auth(credentials.get_frozen_credentials(), "s3", region).add_auth(request)
        return dict(request.headers)

    return sign
