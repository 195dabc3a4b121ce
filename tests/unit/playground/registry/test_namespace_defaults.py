"""Every namespace has its default service account and, in a cluster with certificates, the root
certificate.
"""

from __future__ import annotations

from kubesched.base.errors import NotFound
from kubesched.playground.control_plane import publish


def exists(api, resource, namespace, name):
    try:
        api.get(resource, namespace, name)
    except NotFound:
        return False
    return True


def test_accounts_and_certificates_come_with_the_namespace(api):
    publish(api.registry, "PEM", "127.0.0.1", 6443)
    api.create("namespaces", {"metadata": {"name": "late"}})
    for namespace in ("default", "kube-system", "late"):
        assert exists(api, "serviceaccounts", namespace, "default")
        config_map = api.get("configmaps", namespace, "kube-root-ca.crt")
        assert config_map["data"] == {"ca.crt": "PEM"}


def test_what_is_deleted_or_changed_comes_back(api):
    publish(api.registry, "PEM", "127.0.0.1", 6443)
    old = api.get("serviceaccounts", "default", "default")["metadata"]["uid"]
    api.delete("serviceaccounts", "default", "default")
    assert api.get("serviceaccounts", "default", "default")["metadata"]["uid"] != old
    api.delete("configmaps", "default", "kube-root-ca.crt")
    api.patch("configmaps", "default", "kube-root-ca.crt", {"data": {"ca.crt": "forged"}})
    assert api.get("configmaps", "default", "kube-root-ca.crt")["data"] == {"ca.crt": "PEM"}


def test_a_namespace_that_is_going_gets_nothing_new(api):
    publish(api.registry, "PEM", "127.0.0.1", 6443)
    api.create("namespaces", {"metadata": {"name": "going"}})
    api.delete("namespaces", None, "going")
    api.delete("serviceaccounts", "going", "default")
    api.delete("configmaps", "going", "kube-root-ca.crt")
    assert not exists(api, "serviceaccounts", "going", "default")
    assert not exists(api, "configmaps", "going", "kube-root-ca.crt")
