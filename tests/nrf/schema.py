#!/usr/bin/python3
"""Bodies of Nnrf and Nupf that a UPF sends, judged more strictly than their OpenAPI does: TS 29.510, TS 29.564 and TS 29.571, Release 17 and 18.

usage: tests/nrf/schema.py                                  mistakes planted into good bodies are found
       tests/nrf/schema.py --published FOLDER [BODY.json]   the rules below, compared with those of 3GPP's OpenAPI files, which FOLDER has;
                                                            NFProfiles in files are judged by both

3GPP keeps all rights of its files, so that the tree has rules of our own for the attributes that a UPF may send, and they are compared
with the published ones wherever somebody has these. An attribute that is not listed here is a mistake: misspelt, or to be added here
and compared. Enumerations, which OpenAPI leaves open, are closed.
"""

import argparse
import copy
import datetime
import functools
import json
import os
import re
import sys

import jsonschema

COMMON = "TS29571_CommonData.yaml"
MANAGEMENT = "TS29510_Nnrf_NFManagement.yaml"
TOKENS = "TS29510_Nnrf_AccessToken.yaml"
EXPOSURE = "TS29564_Nupf_EventExposure.yaml"
OCTET = "([0-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])"
SCOPE = "[a-zA-Z0-9_:-]+"
WORD = {"type": "string"}
FLAG = {"type": "boolean"}


def number(least, most=None):
    """An integer within bounds."""
    return {"type": "integer", "minimum": least, **({} if most is None else {"maximum": most})}


def pattern(text, **more):
    """A string of this form."""
    return {"type": "string", "pattern": text, **more}


def one_of(*words):
    """An enumeration."""
    return {"type": "string", "enum": list(words)}


def ref(name):
    """A type of the list below."""
    return {"$ref": f"#/definitions/{name}"}


def several(item, least=1):
    """An array, which is left out where it would be empty."""
    return {"type": "array", "items": ref(item) if isinstance(item, str) else item, "minItems": least}


def record(required, **attributes):
    """An object with these attributes and no others."""
    made = {name: ref(kind) if isinstance(kind, str) else kind for name, kind in attributes.items()}
    return {"type": "object", "required": required, "properties": made, "additionalProperties": False}


TYPES = {
    # Version 4, says the text; the OpenAPI, any.
    "NfInstanceId": {**pattern("^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"), "format": "uuid"},
    "Mcc": pattern(r"^\d{3}$"),
    "Mnc": pattern(r"^\d{2,3}$"),
    "PlmnId": record(["mcc", "mnc"], mcc="Mcc", mnc="Mnc"),
    "Tac": pattern("(^[A-Fa-f0-9]{4}$)|(^[A-Fa-f0-9]{6}$)"),
    "Tai": record(["plmnId", "tac"], plmnId="PlmnId", tac="Tac"),
    "SdRange": record([], start=pattern("^[A-Fa-f0-9]{6}$"), end=pattern("^[A-Fa-f0-9]{6}$")),
    "ExtSnssai": record(["sst"], sst=number(0, 255), sd=pattern("^[A-Fa-f0-9]{6}$"), sdRanges=several("SdRange"), wildcardSd={"type": "boolean", "enum": [True]}),
    "Fqdn": pattern(r"^([0-9A-Za-z]([-0-9A-Za-z]{0,61}[0-9A-Za-z])?\.)+[A-Za-z]{2,63}\.?$", minLength=4, maxLength=253),
    "Ipv4Addr": pattern(rf"^({OCTET}\.){{3}}{OCTET}$"),
    "Ipv6Addr": {
        "type": "string",
        "allOf": [
            {"pattern": "^((:|(0?|([1-9a-f][0-9a-f]{0,3}))):)((0?|([1-9a-f][0-9a-f]{0,3})):){0,6}(:|(0?|([1-9a-f][0-9a-f]{0,3})))$"},
            {"pattern": "^((([^:]+:){7}([^:]+))|((([^:]+:)*[^:]+)?::(([^:]+:)*[^:]+)?))$"},
        ],
    },
    "Ipv6Prefix": {
        "type": "string",
        "allOf": [
            {"pattern": r"^((:|(0?|([1-9a-f][0-9a-f]{0,3}))):)((0?|([1-9a-f][0-9a-f]{0,3})):){0,6}(:|(0?|([1-9a-f][0-9a-f]{0,3})))(\/(([0-9])|([0-9]{2})|(1[0-1][0-9])|(12[0-8])))$"},
            {"pattern": r"^((([^:]+:){7}([^:]+))|((([^:]+:)*[^:]+)?::(([^:]+:)*[^:]+)?))(\/.+)$"},
        ],
    },
    "DateTime": {"type": "string", "format": "date-time"},
    "Dnn": WORD,
    "Dnai": WORD,
    "PduSessionType": one_of("IPV4", "IPV6", "IPV4V6", "UNSTRUCTURED", "ETHERNET"),
    "NFStatus": one_of("REGISTERED", "SUSPENDED", "UNDISCOVERABLE"),
    "UPInterfaceType": one_of("N3", "N6", "N9", "DATA_FORWARDING", "N3MB", "N6MB", "N19MB", "NMB9"),
    "Ipv4AddressRange": record([], start="Ipv4Addr", end="Ipv4Addr"),
    "Ipv6PrefixRange": record([], start="Ipv6Prefix", end="Ipv6Prefix"),
    "AtsssCapability": record([], atsssLL=FLAG, mptcp=FLAG, rttWithoutPmf=FLAG),
    "DnnUpfInfoItem": record(
        ["dnn"],
        dnn="Dnn",
        dnaiList=several("Dnai"),
        pduSessionTypes=several("PduSessionType"),
        ipv4AddressRanges=several("Ipv4AddressRange"),
        ipv6PrefixRanges=several("Ipv6PrefixRange"),
        dnaiNwInstanceList={"type": "object", "additionalProperties": WORD, "minProperties": 1},
    ),
    "SnssaiUpfInfoItem": record(["sNssai", "dnnUpfInfoList"], sNssai="ExtSnssai", dnnUpfInfoList=several("DnnUpfInfoItem"), redundantTransport=FLAG),
    "InterfaceUpfInfoItem": record(
        ["interfaceType"],
        interfaceType="UPInterfaceType",
        ipv4EndpointAddresses=several("Ipv4Addr"),
        ipv6EndpointAddresses=several("Ipv6Addr"),
        endpointFqdn="Fqdn",
        networkInstance=WORD,
    ),
    "UpfInfo": record(
        ["sNssaiUpfInfoList"],
        sNssaiUpfInfoList=several("SnssaiUpfInfoItem"),
        smfServingArea=several(WORD),
        interfaceUpfInfoList=several("InterfaceUpfInfoItem"),
        iwkEpsInd=FLAG,
        pduSessionTypes=several("PduSessionType"),
        atsssCapability="AtsssCapability",
        ueIpAddrInd=FLAG,
        taiList=several("Tai"),
        priority=number(0, 65535),
        redundantGtpu=FLAG,
        ipups=FLAG,
        dataForwarding=FLAG,
        supportedPfcpFeatures=WORD,
    ),
    "NFServiceVersion": record(["apiVersionInUri", "apiFullVersion"], apiVersionInUri=WORD, apiFullVersion=WORD, expiry="DateTime"),
    "IpEndPoint": record([], ipv4Address="Ipv4Addr", ipv6Address="Ipv6Addr", transport=one_of("TCP"), port=number(0, 65535)),
    "NFService": record(
        ["serviceInstanceId", "serviceName", "versions", "scheme", "nfServiceStatus"],
        serviceInstanceId=WORD,
        serviceName=one_of("nupf-ee"),
        versions=several("NFServiceVersion"),
        scheme=one_of("http", "https"),
        nfServiceStatus="NFStatus",
        fqdn="Fqdn",
        ipEndPoints=several("IpEndPoint"),
        apiPrefix=WORD,
        priority=number(0, 65535),
        capacity=number(0, 65535),
        load=number(0, 100),
        recoveryTime="DateTime",
    ),
    "NFProfile": {
        **record(
            ["nfInstanceId", "nfType", "nfStatus"],
            nfInstanceId="NfInstanceId",
            nfInstanceName=WORD,
            nfType=one_of("UPF"),
            nfStatus="NFStatus",
            heartBeatTimer=number(1),
            plmnList=several("PlmnId"),
            sNssais=several("ExtSnssai"),
            fqdn="Fqdn",
            ipv4Addresses=several("Ipv4Addr"),
            ipv6Addresses=several("Ipv6Addr"),
            allowedNfTypes=several(WORD),
            priority=number(0, 65535),
            capacity=number(0, 65535),
            load=number(0, 100),
            loadTimeStamp="DateTime",
            locality=WORD,
            upfInfo="UpfInfo",
            upfInfoList={"type": "object", "additionalProperties": ref("UpfInfo"), "minProperties": 1},
            recoveryTime="DateTime",
            nfServicePersistence=FLAG,
            nfServices=several("NFService"),
            nfServiceList={"type": "object", "additionalProperties": ref("NFService"), "minProperties": 1},
            nfProfileChangesSupportInd=FLAG,
            lcHSupportInd=FLAG,
            olcHSupportInd=FLAG,
        ),
        "anyOf": [{"required": ["fqdn"]}, {"required": ["ipv4Addresses"]}, {"required": ["ipv6Addresses"]}],
    },
    "Uint64": number(0, (1 << 64) - 1),
    "BitRate": pattern(r"^\d+(\.\d+)? (bps|Kbps|Mbps|Gbps|Tbps)$"),
    "PacketRate": pattern(r"^\d+(\.\d+)? (pps|kpps|Mpps|Gpps|Tpps)$"),
    "TrafficVolume": pattern(r"^\d+(\.\d+)? (B|kB|MB|GB|TB)$"),
    "Snssai": record(["sst"], sst=number(0, 255), sd=pattern("^[A-Fa-f0-9]{6}$")),
    "SamplingRatio": number(1, 100),
    "VolumeMeasurement": record(
        [],
        totalVolume="TrafficVolume",
        ulVolume="TrafficVolume",
        dlVolume="TrafficVolume",
        totalNbOfPackets="Uint64",
        ulNbOfPackets="Uint64",
        dlNbOfPackets="Uint64",
    ),
    "ThroughputMeasurement": record([], ulThroughput="BitRate", dlThroughput="BitRate", ulPacketThroughput="PacketRate", dlPacketThroughput="PacketRate"),
    "ThroughputStatisticsMeasurement": record(
        [],
        ulAverageThroughput="BitRate",
        dlAverageThroughput="BitRate",
        ulPeakThroughput="BitRate",
        dlPeakThroughPut="BitRate",
        ulAveragePacketThroughput="PacketRate",
        dlAveragePacketThroughput="PacketRate",
        ulPeakPacketThroughput="PacketRate",
        dlPeakPacketThroughput="PacketRate",
    ),
    "UserDataUsageMeasurements": record(
        [],
        volumeMeasurement="VolumeMeasurement",
        throughputMeasurement="ThroughputMeasurement",
        throughputStatisticsMeasurement="ThroughputStatisticsMeasurement",
    ),
    "EventType": one_of("USER_DATA_USAGE_MEASURES", "USER_DATA_USAGE_TRENDS"),
    "NotificationItem": {
        **record(
            ["eventType", "timeStamp"],
            eventType="EventType",
            ueIpv4Addr="Ipv4Addr",
            ueIpv6Prefix="Ipv6Prefix",
            dnn="Dnn",
            snssai="Snssai",
            gpsi=pattern("^(msisdn-[0-9]{5,15}|extid-[^@]+@[^@]+|.+)$"),
            supi=pattern("^(imsi-[0-9]{5,15}|nai-.+|gci-.+|gli-.+|.+)$"),
            timeStamp="DateTime",
            startTime="DateTime",
            userDataUsageMeasurements=several("UserDataUsageMeasurements"),
        ),
        "anyOf": [{"required": ["ueIpv4Addr"]}, {"required": ["ueIpv6Prefix"]}],
    },
    "NotificationData": record(["notificationItems"], notificationItems=several("NotificationItem"), correlationId=WORD, achievedSampRatio="SamplingRatio"),
    "InvalidParam": record(["param"], param=WORD, reason=WORD),
    "ProblemDetails": record([], status={"type": "integer"}, cause=WORD, detail=WORD, invalidParams=several("InvalidParam")),
    "PatchItem": {**record(["op", "path"], op=one_of("add", "copy", "move", "remove", "replace", "test"), path=WORD, value={}), "properties": {
        "op": one_of("add", "copy", "move", "remove", "replace", "test"), "path": WORD, "from": WORD, "value": {}}},
    "AccessTokenReq": record(
        ["grant_type", "nfInstanceId", "scope"],
        grant_type=one_of("client_credentials"),
        nfInstanceId="NfInstanceId",
        nfType=one_of("UPF"),
        targetNfType=one_of("NRF"),
        scope=pattern(f"^({SCOPE})( {SCOPE})*$"),
        requesterFqdn="Fqdn",
    ),
}
# Files of types that are not in TS 29.510's management; rules that are narrower here on purpose, by type and attribute.
AT = {
    **dict.fromkeys("NfInstanceId Mcc Mnc PlmnId Tac Tai SdRange ExtSnssai Fqdn Ipv4Addr Ipv6Addr Ipv6Prefix DateTime Dnn Dnai".split(), COMMON),
    **dict.fromkeys("PduSessionType AtsssCapability PatchItem".split(), COMMON),
    **dict.fromkeys("Uint64 BitRate PacketRate TrafficVolume Snssai SamplingRatio InvalidParam ProblemDetails".split(), COMMON),
    **dict.fromkeys("VolumeMeasurement ThroughputMeasurement ThroughputStatisticsMeasurement UserDataUsageMeasurements".split(), EXPOSURE),
    **dict.fromkeys("EventType NotificationItem NotificationData".split(), EXPOSURE),
    "AccessTokenReq": TOKENS,
}
NARROWER = {
    "NfInstanceId": "pattern",
    "NFProfile.nfType": "enum",
    "NFProfile.allowedNfTypes[]": "enum",
    "NFService.serviceName": "enum",
    "NFService.nfServiceStatus": "enum",
    # Events that this UPF tells of, of UEs that have addresses.
    "EventType": "enum",
    "NotificationItem": "anyOf",
    "AccessTokenReq.nfType": "enum",
    "AccessTokenReq.targetNfType": "enum",
}


@functools.lru_cache(None)
def validator(kind):
    """Of one type."""
    whole = {"definitions": TYPES, **ref(kind)}
    return jsonschema.Draft7Validator(whole, format_checker=FORMATS)


FORMATS = jsonschema.FormatChecker(formats=())


@FORMATS.checks("date-time")
def is_date_time(text):
    """RFC 3339, with its zone."""
    if not isinstance(text, str):
        return True
    found = re.fullmatch(r"\d{4}-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)", text)
    if not found:
        return False
    month, day, hour, minute, second = (int(part) for part in found.groups()[:5])
    return 1 <= month <= 12 and 1 <= day <= 31 and hour <= 23 and minute <= 59 and second <= 60


def plain(error):
    """One line: place and reason."""
    at = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    return f"{at or '.'}: {error.message[:300]}"


def mistakes(kind, body):
    """Mistakes in a body of this type; lines."""
    return [plain(error) for error in validator(kind).iter_errors(body)]


def profile_mistakes(body):
    """Of an NFProfile, and what the text of the specifications asks for beside."""
    found = mistakes("NFProfile", body)
    if found or not isinstance(body, dict):
        return found
    if "loadTimeStamp" in body and "load" not in body:
        found.append(".loadTimeStamp: without a load")
    for interface in body.get("upfInfo", {}).get("interfaceUpfInfoList", []):
        if not {"ipv4EndpointAddresses", "ipv6EndpointAddresses", "endpointFqdn", "networkInstance"} & set(interface):
            found.append(f".upfInfo.interfaceUpfInfoList: {interface} says nothing of an interface")
    slices = [json.dumps(one["sNssai"], sort_keys=True) for one in body.get("upfInfo", {}).get("sNssaiUpfInfoList", [])]
    if len(set(slices)) != len(slices):
        found.append(".upfInfo.sNssaiUpfInfoList: a slice twice")
    top = {json.dumps(one, sort_keys=True) for one in body.get("sNssais", [])}
    if top and not set(slices) <= top:
        found.append(".upfInfo.sNssaiUpfInfoList: a slice that sNssais has not")
    return found


def instant(text):
    """Of a DateTime: a whole second has no fraction, so that texts do not compare."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def notification_mistakes(body):
    """Of NotificationData, and what its numbers ask for."""
    found = mistakes("NotificationData", body)
    for place, item in enumerate(body["notificationItems"] if not found else []):
        say = lambda text, at=place: found.append(f".notificationItems[{at}]: {text}")
        if "startTime" in item and instant(item["startTime"]) >= instant(item["timeStamp"]):
            say(f"from {item['startTime']} to {item['timeStamp']}")
        if len(item.get("userDataUsageMeasurements", [])) != 1 or not item["userDataUsageMeasurements"][0]:
            say("nothing that is measured")
        for measured in item.get("userDataUsageMeasurements", []):
            volume = measured.get("volumeMeasurement")
            octets = lambda name, of=volume: int(of[name].removesuffix(" B"))
            if volume and octets("totalVolume") != octets("ulVolume") + octets("dlVolume"):
                say("totalVolume is no sum")
            if volume and volume["totalNbOfPackets"] != volume["ulNbOfPackets"] + volume["dlNbOfPackets"]:
                say("totalNbOfPackets is no sum")
    return found


def patch_mistakes(body, profile):
    """Of a JSON Patch of that profile."""
    found = [] if isinstance(body, list) and body else ["a patch is an array with an operation or more"]
    for item in body if isinstance(body, list) else []:
        found += mistakes("PatchItem", item)
    if found:
        return found
    patched = copy.deepcopy(profile)
    for item in body:
        if not item["path"].startswith("/") or "/" in item["path"][1:]:
            found.append(f"{item['path']}: attributes of the profile itself are changed whole")
            continue
        name = item["path"][1:].replace("~1", "/").replace("~0", "~")
        # RFC 6902, 4.3: the target of a replacement, and of a removal, must be there.
        if item["op"] in ("replace", "remove") and name not in patched:
            found.append(f"{item['op']} {item['path']}: the registered profile has none")
        elif item["op"] in ("replace", "add"):
            if "value" not in item:
                found.append(f"{item['op']} {item['path']}: no value")
                continue
            patched[name] = item["value"]
        elif item["op"] == "remove":
            del patched[name]
        else:
            found.append(f"{item['op']}: nothing that a UPF would need")
    if patched.get("nfInstanceId") != profile.get("nfInstanceId") or patched.get("nfType") != profile.get("nfType"):
        found.append("nfInstanceId and nfType stay as they are")
    profile_found = profile_mistakes(patched)
    return found or profile_found


def token_mistakes(form):
    """Of a request for a token: a dictionary of the form's fields."""
    found = mistakes("AccessTokenReq", form)
    for name in ["nfType", "targetNfType"]:
        if name not in form:
            found.append(f"{name}: missing, though no NRF instance is meant")
    if "nnrf-nfm" not in form.get("scope", "").split():
        found.append("scope: without nnrf-nfm")
    return found


class Published:
    """The OpenAPI files of 3GPP, from a folder."""

    def __init__(self, folder):
        self.folder, self.files = folder, {}

    def file(self, name):
        """One, read once."""
        if name not in self.files:
            import yaml  # of --published alone

            with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                self.files[name] = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return self.files[name]

    def target(self, reference, within):
        """Target of a $ref, and its file."""
        name, _, pointer = reference.partition("#/")
        name = name or within
        at = self.file(name)
        for part in pointer.split("/"):
            at = at[part]
        return at, name

    def open(self, schema, within):
        """References followed, allOf of objects joined, open enumerations closed, until there is a plain schema; and its file."""
        while "$ref" in schema:
            schema, within = self.target(schema["$ref"], within)
        choices = schema.get("anyOf", [])
        if len(choices) == 2 and "enum" in choices[0] and choices[1] == {"type": "string"}:
            return choices[0], within
        parts = [self.open(part, within) for part in schema.get("allOf", []) if "$ref" in part]
        if parts and all("properties" in part for part, _ in parts):
            joined = {"type": "object", "required": [], "properties": {}}
            for part, there in parts:
                joined["required"] = joined["required"] + part.get("required", [])
                joined["properties"].update({name: (value, there) for name, value in part["properties"].items()})
            return joined, within
        return schema, within

    def differences(self):
        """Lines: each rule of ours that is not as published."""
        found = []
        for name, ours in TYPES.items():
            at = AT.get(name, MANAGEMENT)
            theirs = self.file(at)["components"]["schemas"].get(name)
            if theirs is None:
                found.append(f"{name}: no type of {at}")
                continue
            found += self._differ(ours, theirs, at, name)
        return found

    def _differ(self, ours, theirs, within, path):
        if "$ref" in ours:
            wanted = ours["$ref"].rpartition("/")[2]
            # A type of the same name is compared in its turn.
            if theirs.get("$ref", "").rpartition("/")[2] == wanted:
                return []
            ours = TYPES[wanted]
        theirs, within = self.open(theirs, within)
        found = []
        for key in ["type", "minimum", "maximum", "minLength", "maxLength", "minItems", "minProperties", "pattern", "enum", "format"]:
            one, other = ours.get(key), theirs.get(key)
            if one != other and NARROWER.get(path) != key:
                found.append(f"{path}: {key} {one!r}, published {other!r}")
        for key in ["allOf", "anyOf"]:
            one, other = ours.get(key), theirs.get(key)
            if one is not None and one != other and NARROWER.get(path) != key:
                found.append(f"{path}: {key} {one!r}, published {other!r}")
        if sorted(ours.get("required", [])) != sorted(theirs.get("required", [])):
            found.append(f"{path}: required {ours.get('required')}, published {theirs.get('required')}")
        for name, value in ours.get("properties", {}).items():
            other = theirs.get("properties", {}).get(name)
            if other is None:
                found.append(f"{path}.{name}: no attribute")
                continue
            other, there = other if isinstance(other, tuple) else (other, within)
            found += self._differ(value, other, there, f"{path}.{name}")
        for key in ["items", "additionalProperties"]:
            if isinstance(ours.get(key), dict):
                if not isinstance(theirs.get(key), dict):
                    found.append(f"{path}: {key} published as {theirs.get(key)}")
                    continue
                found += self._differ(ours[key], theirs[key], within, f"{path}[]")
        return found

    def mistakes(self, kind, body):
        """Of a body, by the published rules as they are."""
        at = AT.get(kind, MANAGEMENT)
        store = {}

        def load(uri):
            name = uri.rpartition("/")[2]
            if name not in store:
                store[name] = draft(self.file(name))
            return store[name]

        base = "file:///"
        handlers = {"file": load}
        resolver = jsonschema.RefResolver(f"{base}{at}", load(at), handlers=handlers)
        schema = {"$ref": f"{base}{at}#/components/schemas/{kind}"}
        return [plain(error) for error in jsonschema.Draft7Validator(schema, resolver=resolver, format_checker=FORMATS).iter_errors(body)]


def draft(schema):
    """OpenAPI 3.0's dialect as JSON Schema, draft 7."""
    if isinstance(schema, list):
        return [draft(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: draft(value) for key, value in schema.items() if key not in ("discriminator", "example", "xml", "externalDocs")}
    if made.pop("nullable", None) is True and isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
        if "enum" in made:
            made["enum"] = [*made["enum"], None]
    return made


GOOD = {
    "nfInstanceId": "6f1c3c1e-4a2b-4c55-9d7e-0a1b2c3d4e5f",
    "nfType": "UPF",
    "nfStatus": "REGISTERED",
    "heartBeatTimer": 10,
    "plmnList": [{"mcc": "001", "mnc": "01"}],
    "sNssais": [{"sst": 1, "sd": "010203"}, {"sst": 2}],
    "fqdn": "upf.example",
    "ipv4Addresses": ["10.100.0.1"],
    "ipv6Addresses": ["2001:db8::1"],
    "priority": 0,
    "capacity": 100,
    "load": 0,
    "loadTimeStamp": "2026-11-29T01:02:03Z",
    "locality": "rack 7",
    "upfInfo": {
        "sNssaiUpfInfoList": [{"sNssai": {"sst": 1, "sd": "010203"}, "dnnUpfInfoList": [{"dnn": "internet", "pduSessionTypes": ["IPV4"]}]}],
        "interfaceUpfInfoList": [{"interfaceType": "N3", "ipv4EndpointAddresses": ["10.3.0.1"], "networkInstance": "access"}],
    },
}
SLICE, INTERFACE = ("upfInfo", "sNssaiUpfInfoList", 0), ("upfInfo", "interfaceUpfInfoList", 0)
# Places and values; None: left out.
PLANTED = [
    (("nfInstanceId",), "6f1c3c1e-4a2b-5c55-9d7e-0a1b2c3d4e5f"),
    (("nfInstanceId",), "upf-1"),
    (("nfInstanceId",), None),
    (("nfType",), "SMF"),
    (("nfType",), None),
    (("nfStatus",), "registered"),
    (("nfStatus",), None),
    (("heartBeatTimer",), 0),
    (("heartBeatTimer",), "10"),
    (("heartbeatTimer",), 10),
    (("plmnList",), []),
    (("plmnList", 0), "00101"),
    (("plmnList", 0, "mnc"), "1"),
    (("plmnList", 0, "mcc"), 1),
    (("sNssais",), []),
    (("snssais",), [{"sst": 1}]),
    (("sNssais", 0, "sst"), 256),
    (("sNssais", 0, "sd"), "10203"),
    (("sNssais", 0, "sd"), "0x0102"),
    (("fqdn",), "upf1"),
    (("fqdn",), ""),
    (("ipv4Addresses",), []),
    (("ipv4Addresses", 0), "10.100.0.1:8805"),
    (("ipv4Addresses", 0), "010.100.0.1"),
    (("ipv6Addresses", 0), "2001:DB8::1"),
    (("ipv6Addresses", 0), "[2001:db8::1]"),
    (("ipv6Addresses", 0), "::ffff:10.0.0.1"),
    (("priority",), 65536),
    (("capacity",), -1),
    (("load",), 101),
    (("load",), 0.5),
    (("load",), None),
    (("loadTimeStamp",), "2026-11-29 01:02:03"),
    (("loadTimeStamp",), 1790000000),
    (("upfInfo", "sNssaiUpfInfoList"), []),
    (("upfInfo", "sNssaiUpfInfoList"), None),
    (("upfInfo", "snssaiUpfInfoList"), []),
    ((*SLICE, "dnnUpfInfoList"), []),
    ((*SLICE, "dnnUpfInfoList"), None),
    ((*SLICE, "dnnUpfInfoList", 0), "internet"),
    ((*SLICE, "dnnUpfInfoList", 0, "pduSessionTypes"), ["IPv4"]),
    ((*SLICE, "snssai"), {"sst": 1}),
    ((*SLICE, "sNssai"), {"sst": 3}),
    ((*INTERFACE, "interfaceType"), "n3"),
    ((*INTERFACE, "interfaceType"), None),
    ((*INTERFACE, "ipv4EndpointAddresses"), []),
    ((*INTERFACE, "ipv4EndpointAddress"), ["10.3.0.1"]),
    ((*INTERFACE,), {"interfaceType": "N6"}),
]
PATCHES = [
    [],
    {},
    [{"op": "replace", "path": "/nfStatus"}],
    [{"op": "replace", "path": "nfStatus", "value": "REGISTERED"}],
    [{"op": "replace", "path": "/nfstatus", "value": "REGISTERED"}],
    [{"op": "replace", "path": "/load", "value": 101}],
    [{"op": "replace", "path": "/load", "value": "3"}],
    [{"op": "set", "path": "/load", "value": 3}],
    [{"op": "replace", "path": "/nfInstanceId", "value": "6f1c3c1e-4a2b-4c55-9d7e-0a1b2c3d4e50"}],
    [{"op": "replace", "path": "/recoveryTime", "value": "2026-11-29T01:02:03Z"}],
    [{"op": "remove", "path": "/nfType"}],
    [{"op": "replace", "path": "/load", "value": 3, "Value": 3}],
]
FORM = {"grant_type": "client_credentials", "nfInstanceId": GOOD["nfInstanceId"], "nfType": "UPF", "targetNfType": "NRF", "scope": "nnrf-nfm"}


def planted():
    """Good bodies, each with one mistake: profile, place and value."""
    for path, value in PLANTED:
        body = copy.deepcopy(GOOD)
        at = body
        for part in path[:-1]:
            at = at[part]
        if value is None:
            del at[path[-1]]
        else:
            at[path[-1]] = value
        yield body, path, value


def planted_notifications():
    """Notifications with a mistake each."""
    for path, value in [
        ("correlationId", 7),
        ("notificationItems", []),
        ("notificationItems/0/eventType", "QOS_MONITORING"),
        ("notificationItems/0/eventType", None),
        ("notificationItems/0/ueIpv4Addr", None),
        ("notificationItems/0/ueIpv4Addr", "10.60.0.256"),
        ("notificationItems/0/timeStamp", "2026-11-29T10:00:00"),
        ("notificationItems/0/timeStamp", "2026-11-29T09:00:00Z"),
        ("notificationItems/0/ueIpv6Prefix", "2001:db8::"),
        ("notificationItems/0/snssai", {"sst": 256}),
        ("notificationItems/0/userDataUsageMeasurements", []),
        ("notificationItems/0/userDataUsageMeasurements/0", {}),
        ("notificationItems/0/userDataUsageMeasurements/0/volumeMeasurement/totalVolume", 300),
        ("notificationItems/0/userDataUsageMeasurements/0/volumeMeasurement/totalVolume", "301 B"),
        ("notificationItems/0/userDataUsageMeasurements/0/volumeMeasurement/ulVolume", "100 octets"),
        ("notificationItems/0/userDataUsageMeasurements/0/volumeMeasurement/dlNbOfPackets", 3),
        ("notificationItems/0/userDataUsageMeasurements/0/throughputMeasurement", {"ulThroughput": "8 pps"}),
        ("notificationItems/0/userDataUsageMeasurements/0/throughputStatisticsMeasurement", {"dlPeakThroughput": "8 bps"}),
        ("achievedSampRatio", 0),
    ]:
        body = copy.deepcopy(NOTIFICATION)
        *way, last = [int(part) if part.isdigit() else part for part in path.split("/")]
        at = functools.reduce(lambda at, part: at[part], way, body)
        if value is None:
            del at[last]
        else:
            at[last] = value
        yield body, path, value


NOTIFICATION = {
    "correlationId": "one",
    "notificationItems": [{
        "eventType": "USER_DATA_USAGE_MEASURES",
        "ueIpv4Addr": "10.60.0.2",
        "startTime": "2026-11-29T10:00:00Z",
        "timeStamp": "2026-11-29T10:00:01.5Z",
        "userDataUsageMeasurements": [{
            "volumeMeasurement": {
                "totalVolume": "300 B", "ulVolume": "100 B", "dlVolume": "200 B", "totalNbOfPackets": 3, "ulNbOfPackets": 1, "dlNbOfPackets": 2,
            },
            "throughputMeasurement": {"ulThroughput": "533 bps", "dlPacketThroughput": "1.333 pps"},
        }],
    }],
}


def self_test():
    """Good bodies pass, planted mistakes are found; the number of them."""
    assert not profile_mistakes(GOOD), profile_mistakes(GOOD)
    bare = {name: GOOD[name] for name in ["nfInstanceId", "nfType", "nfStatus", "ipv4Addresses"]}
    assert not profile_mistakes(bare), profile_mistakes(bare)
    del bare["ipv4Addresses"]
    assert profile_mistakes(bare), "a UPF that nobody can reach"
    found = 1
    for body, path, value in planted():
        wrong = profile_mistakes(body)
        assert wrong, f"{path} {value!r}"
        found += 1
    for patch in PATCHES:
        assert patch_mistakes(patch, GOOD), patch
    beat = [{"op": "replace", "path": "/nfStatus", "value": "REGISTERED"}, {"op": "replace", "path": "/load", "value": 7}]
    assert not patch_mistakes(beat, GOOD), patch_mistakes(beat, GOOD)
    assert not token_mistakes(FORM), token_mistakes(FORM)
    for name in FORM:
        assert token_mistakes({**FORM, name: "else"}), name
        assert token_mistakes({other: FORM[other] for other in FORM if other != name}), name
    assert not notification_mistakes(NOTIFICATION), notification_mistakes(NOTIFICATION)
    for body, path, value in planted_notifications():
        assert notification_mistakes(body), f"{path} {value!r}"
        found += 1
    return found + len(PATCHES) + 2 * len(FORM)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--published", metavar="FOLDER")
    parser.add_argument("bodies", nargs="*")
    arguments = parser.parse_args()
    print(f"{self_test()} planted mistakes are found")
    wrong = []
    published = Published(arguments.published) if arguments.published else None
    if published:
        wrong += published.differences()
        by_both = [bool(published.mistakes("NFProfile", body)) for body, _, _ in planted()]
        good = published.mistakes("NFProfile", GOOD)
        wrong += [f"a good profile, by the published rules: {line}" for line in good]
        print(f"{len(TYPES)} types compared with the published ones, which find {sum(by_both)} of {len(by_both)} mistakes in profiles")
    for name in arguments.bodies:
        with open(name, encoding="utf-8") as file:
            body = json.load(file)
        wrong += [f"{name}{line}" for line in profile_mistakes(body)]
        wrong += [f"{name}, by the published rules, {line}" for line in (published.mistakes("NFProfile", body) if published else [])]
    for line in wrong:
        print(line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
