"""An SMF, a gNB and a server of the data network around a UPF with the addresses of the example, by scapy."""

import itertools
import select
import socket
import struct
import threading
import time

from scapy.contrib.gtp import GTP_U_Header
from scapy.contrib.pfcp import (
    PFCP,
    IE_ApplyAction,
    IE_CreateFAR,
    IE_CreatePDR,
    IE_DestinationInterface,
    IE_FAR_Id,
    IE_ForwardingParameters,
    IE_FSEID,
    IE_FTEID,
    IE_NetworkInstance,
    IE_NodeId,
    IE_OuterHeaderCreation,
    IE_OuterHeaderRemoval,
    IE_PDI,
    IE_PDR_Id,
    IE_Precedence,
    IE_RecoveryTimeStamp,
    IE_SourceInterface,
    IE_UE_IP_Address,
    PFCPAssociationSetupRequest,
    PFCPHeartbeatRequest,
    PFCPHeartbeatResponse,
    PFCPSessionEstablishmentRequest,
)
from scapy.layers.inet import IP, UDP

UPF_N4, SMF = "10.100.0.1", "10.100.0.2"
UPF_N3, GNB = "10.3.0.1", "10.3.0.2"
UPF_N6, SERVER = "10.6.0.1", "10.6.0.2"
UE = "10.60.0.2"
TEID_OF_UPF, TEID_OF_GNB = 0x1001, 0x2001
ACCEPTED = 1
# The last octets of each packet.
NUMBER = struct.Struct("!I")
# asm-generic/socket.h
SO_RCVBUFFORCE = 33


class Smf:
    """One that answers heartbeats, as long as it lives."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((SMF, 8805))
        self.socket.connect((UPF_N4, 8805))
        self.numbers = itertools.count(1)

    def ask(self, message, seid=None, patience_s=60):
        """One request, which is never repeated, and its answer."""
        number = next(self.numbers)
        header = PFCP(S=seid is not None, seid=seid or 0, seq=number)
        self.socket.send(bytes(header / message))
        deadline = time.monotonic() + patience_s
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self.socket], [], [], left)[0]:
                break
            # Raises what an ICMP error says.
            answer = PFCP(self.socket.recv(65535))
            if isinstance(answer.payload, PFCPHeartbeatRequest):
                stamp = IE_RecoveryTimeStamp(timestamp=3_900_000_000)
                self.socket.send(bytes(PFCP(S=0, seq=answer.seq) / PFCPHeartbeatResponse(IE_list=[stamp])))
            elif answer.seq == number:
                return answer
        raise AssertionError(f"no answer to {message.name}")

    def associate(self):
        """An association."""
        ies = [IE_NodeId(id_type=0, ipv4=SMF), IE_RecoveryTimeStamp(timestamp=3_900_000_000)]
        assert cause(self.ask(PFCPAssociationSetupRequest(IE_list=ies))) == ACCEPTED

    def heartbeat(self, patience_s=60):
        """Recovery Time Stamp of the UPF."""
        ies = [IE_RecoveryTimeStamp(timestamp=3_900_000_000)]
        return find(self.ask(PFCPHeartbeatRequest(IE_list=ies), patience_s=patience_s), IE_RecoveryTimeStamp).timestamp

    def establish(self):
        """The session of the UE, with one tunnel."""
        uplink = IE_CreatePDR(
            IE_list=[
                IE_PDR_Id(id=1),
                IE_Precedence(precedence=100),
                IE_PDI(
                    IE_list=[
                        IE_SourceInterface(interface=0),
                        IE_FTEID(V4=1, TEID=TEID_OF_UPF, ipv4=UPF_N3),
                        IE_NetworkInstance(instance="internet"),
                        IE_UE_IP_Address(V4=1, ipv4=UE),
                    ]
                ),
                IE_OuterHeaderRemoval(header=0),
                IE_FAR_Id(id=1),
            ]
        )
        downlink = IE_CreatePDR(
            IE_list=[
                IE_PDR_Id(id=2),
                IE_Precedence(precedence=100),
                IE_PDI(
                    IE_list=[
                        IE_SourceInterface(interface=1),
                        IE_NetworkInstance(instance="internet"),
                        IE_UE_IP_Address(V4=1, SD=1, ipv4=UE),
                    ]
                ),
                IE_FAR_Id(id=2),
            ]
        )
        to_server = [IE_DestinationInterface(interface=1), IE_NetworkInstance(instance="internet")]
        tunnel = IE_OuterHeaderCreation(GTPUUDPIPV4=1, TEID=TEID_OF_GNB, ipv4=GNB)
        to_gnb = [IE_DestinationInterface(interface=0), tunnel]
        ies = [
            IE_NodeId(id_type=0, ipv4=SMF),
            IE_FSEID(v4=1, seid=7, ipv4=SMF),
            uplink,
            downlink,
            IE_CreateFAR(
                IE_list=[IE_FAR_Id(id=1), IE_ApplyAction(FORW=1), IE_ForwardingParameters(IE_list=to_server)]
            ),
            IE_CreateFAR(IE_list=[IE_FAR_Id(id=2), IE_ApplyAction(FORW=1), IE_ForwardingParameters(IE_list=to_gnb)]),
        ]
        answer = self.ask(PFCPSessionEstablishmentRequest(IE_list=ies), seid=0)
        assert cause(answer) == ACCEPTED, answer.show(dump=True)


def find(message, kind):
    """The first IE of a kind."""
    return next(ie for ie in message.payload.IE_list if isinstance(ie, kind))


def cause(message):
    """Cause of a response."""
    return next(ie.cause for ie in message.payload.IE_list if ie.name == "IE Cause")


class Course:
    """Numbered packets of the UE to a server that sends each back."""

    EVERY_S = 0.002
    # A test that has no CPU for a second loses none.
    RECEIVE_BUFFER = 8 << 20

    def __init__(self):
        self.server, self.gnb = self._socket(SERVER, 9000), self._socket(GNB, 2152)
        self.sent, self.back, self.newest = 0, set(), -1
        self.over = threading.Event()
        for run in [self._return, self._take]:
            threading.Thread(target=run, daemon=True).start()
        self.begin()

    def _socket(self, address, port):
        it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        it.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, self.RECEIVE_BUFFER)
        it.bind((address, port))
        return it

    def begin(self):
        """Packets are sent from now on."""
        self.over.clear()
        self.sender = threading.Thread(target=self._send, daemon=True)
        self.sender.start()

    def _send(self):
        inner = IP(src=UE, dst=SERVER) / UDP(sport=9000, dport=9000, chksum=0) / NUMBER.pack(0)
        packet = bytes(GTP_U_Header(teid=TEID_OF_UPF, gtp_type=255) / inner)[: -NUMBER.size]
        due = time.monotonic()
        while not self.over.is_set():
            self.gnb.sendto(packet + NUMBER.pack(self.sent), (UPF_N3, 2152))
            self.sent += 1
            due += self.EVERY_S
            time.sleep(max(0, due - time.monotonic()))

    def _return(self):
        while True:
            self.server.sendto(*self.server.recvfrom(2048))

    def _take(self):
        while True:
            message = self.gnb.recv(2048)
            # 8 octets of GTP-U, and what its flags say beside, before the IP packet.
            begin = 8 + (4 if message[0] & 7 else 0)
            if message[1] == 255:
                (number,) = NUMBER.unpack_from(message, begin + 28)
                self.back.add(number)
                self.newest = max(self.newest, number)

    def flows(self):
        """Whether packets that were sent after the call come back."""
        number = self.sent
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.newest >= number:
                return True
            time.sleep(0.02)
        return False

    def end(self):
        """How many were sent, and how many never came back."""
        self.over.set()
        self.sender.join()
        deadline = time.monotonic() + 10
        while len(self.back) < self.sent and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.sent, self.sent - len(self.back)
