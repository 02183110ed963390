"""The directives of httpd that Headway leaves out without harm: without them, no request is served
that httpd would deny, and applications get the same requests.

A directive that is neither followed nor here is an error, because it may deny something. The names
are those of httpd 2.4. What a directive does to httpd's own files, to its processes or to its
logs does not matter here, since Headway answers with applications alone.
"""

from __future__ import annotations

from collections.abc import Callable

from headway.server.config.apache.syntax import Directive

_PROCESSES = """
    acceptfilter asyncrequestworkerfactor coredumpdirectory defaultruntimedir enablemmap
    enablesendfile extendedstatus flushmaxpipelined flushmaxthreshold gracefulshutdowntimeout
    h2direct h2earlyhints h2maxsessionstreams h2maxworkers h2minworkers h2moderntlsonly h2push
    h2upgrade h2windowsize heartbeataddress identitycheck identitychecktimeout keepalive
    limitinternalrecursion listencoresbucketsratio listentcpdeferaccept loadfile lockfile
    maxclients maxconnectionsperchild maxkeepaliverequests maxmemfree maxrequestsperchild
    maxrequestworkers maxspareservers maxsparethreads minspareservers minsparethreads mutex
    namevirtualhost port protocols protocolshonororder readbuffersize receivebuffersize
    requestreadtimeout rlimitcpu rlimitmem rlimitnproc scoreboardfile sendbuffersize serverlimit
    startservers suexec suexecusergroup threadlimit threadsperchild threadstacksize
    watchdoginterval
"""
_LOGS = """
    bufferedlogs cookielog dumpioinput dumpiooutput errorlog errorlogformat forensiclog
    globallog hostnamelookups logformat logiotrackttfb loglevel logmessage rewritelog
    rewriteloglevel transferlog
"""
# These are about paths without an alias, and about files of httpd's own.
_FILES = """
    addalt addaltbyencoding addaltbytype addcharset adddefaultcharset adddescription addencoding
    addicon addiconbyencoding addiconbytype addlanguage addmoduleinfo addtype
    cachedirlength cachedirlevels cachedisable cachenegotiateddocs cacheroot
    cgiscripttimeout checkbasenamematch checkcaseonly checkspelling contentdigest davlockdb
    defaulticon defaultlanguage defaulttype directorycheckhandler directoryindex
    directoryindexredirect directoryslash documentroot errordocument expiresactive expiresbytype
    expiresdefault fallbackresource fancyindexing fileetag forcelanguagepriority headername
    indexheadinsert indexignore indexignorereset indexoptions indexorderdefault indexstylesheet
    languagepriority limitxmlrequestbody maxrangeoverlaps maxrangereversals maxranges
    mimemagicfile multiviewsmatch proxyhtmlevents proxyhtmllinks qualifyredirecturl
    readmename redirectrelative removecharset removeencoding removehandler removeinputfilter
    removelanguage removeoutputfilter removetype scriptlog scriptlogbuffer scriptloglength
    scriptsock serveradmin serveralias serverpath serversignature servertokens ssiendtag
    ssierrormsg ssietag ssilastmodified ssilegacyexprparser ssistarttag ssitimeformat
    ssiundefinedecho typesconfig usecanonicalphysicalport
"""
_COMPRESSION = """
    brotlialteretag brotlicompressionmaxinputblock brotlicompressionquality
    brotlicompressionwindow brotlifilternote deflatealteretag deflatebuffersize
    deflatecompressionlevel deflatefilternote deflatememlevel deflatewindowsize
"""
# These say who a user is. They deny nothing without AuthType and Require.
_USERS = """
    authbasicauthoritative authbasicprovider authbasicusedigestalgorithm authdbduserpwquery
    authdbduserrealmquery authdbmgroupfile authdbmtype authdbmuserfile authdigestalgorithm
    authdigestdomain authdigestnccheck authdigestnoncelifetime authdigestprovider authdigestqop
    authdigestshmemsize authgroupfile authldapbinddn authldapbindpassword authldapcharsetconfig
    authldapgroupattribute authldapgroupattributeisdn authldapurl authname authnprovideralias
    authuserfile authzdbmtype authzsendforbiddenonfailure ldapcacheentries ldapcachettl
    ldapconnectiontimeout ldapopcacheentries ldapopcachettl ldapsharedcachefile
    ldapsharedcachesize ldaptimeout ldaptrustedglobalcert ldaptrustedmode ldapverifyservercert
"""
# Rules and conditions that do nothing without RewriteRule, ProxyPass or SSLVerifyClient.
_PARTS_OF_OTHERS = """
    aliaspreservepath proxy proxyaddheaders proxyblock proxydomain proxyerroroverride
    proxyiobuffersize proxymatch proxymaxforwards proxypassinherit proxypassinterpolateenv
    proxypassreverse proxypassreversecookiedomain proxypassreversecookiepath proxypreservehost
    proxyreceivebuffersize proxyset proxystatus proxytimeout proxyvia rewritebase rewritecond
    rewriteengine rewritemap rewriteoptions sslcacertificatefile sslcacertificatepath
    sslcadnrequestfile sslcadnrequestpath sslcarevocationcheck sslcarevocationfile
    sslcarevocationpath sslproxycacertificatefile sslproxycacertificatepath
    sslproxycarevocationcheck sslproxycarevocationfile sslproxycarevocationpath
    sslproxycheckpeercn sslproxycheckpeerexpire sslproxycheckpeername sslproxyciphersuite
    sslproxyengine sslproxymachinecertificatechainfile sslproxymachinecertificatefile
    sslproxymachinecertificatepath sslproxyprotocol sslproxyverify sslproxyverifydepth
    sslverifydepth
"""
_TLS = """
    sslcertificatechainfile sslciphersuite sslcompression sslcryptodevice sslhonorcipherorder
    sslinsecurerenegotiation ssloptions sslpassphrasedialog sslrandomseed sslrenegbuffersize
    sslsessioncache sslsessioncachetimeout sslsessionticketkeyfile sslsessiontickets
    sslstaplingcache sslstaplingerrorcachetimeout sslstaplingfaketrylater sslstaplingforceurl
    sslstaplingrespondertimeout sslstaplingresponsemaxage sslstaplingresponsetimeskew
    sslstaplingreturnrespondererrors sslstaplingstandardcachetimeout sslusestapling
"""
HARMLESS = frozenset(
    " ".join((_PROCESSES, _LOGS, _FILES, _COMPRESSION, _USERS, _PARTS_OF_OTHERS, _TLS)).split()
)
# mod_php's, which apply to PHP alone.
_PREFIXES = ("php_value", "php_flag", "php_admin_value", "php_admin_flag")
# Variables by which a browser's name changes how httpd itself answers.
_VARIABLES_OF_HTTPD = {
    "downgrade-1.0",
    "dont-vary",
    "force-no-vary",
    "force-response-1.0",
    "gzip-only-text/html",
    "no-brotli",
    "no-gzip",
    "nokeepalive",
    "redirect-carefully",
    "ssl-accurate-shutdown",
    "ssl-unclean-shutdown",
}
_COMPRESSING = {"DEFLATE", "BROTLI_COMPRESS"}


def is_harmless(directive: Directive) -> bool:
    """Whether Headway may leave the directive out."""
    check = _CONDITIONS.get(directive.key)
    if check is not None:
        return check(directive)
    return directive.key in HARMLESS or directive.key.startswith(_PREFIXES)


def _says(*values: str) -> Callable[[Directive], bool]:
    return lambda directive: " ".join(directive.words).lower() in values


def _sets_variables_of_httpd(directive: Directive) -> bool:
    names = directive.words[1 if directive.key.startswith("browser") else 2 :]
    return all(name.lstrip("!").partition("=")[0] in _VARIABLES_OF_HTTPD for name in names)


def _compresses(directive: Directive) -> bool:
    return bool(directive.words) and set(directive.words[0].upper().split(";")) <= _COMPRESSING


def _unsets_proxy(directive: Directive) -> bool:
    """Headway never passes the field Proxy on."""
    return [word.lower() for word in directive.words][:2] == ["unset", "proxy"]


def _allows_tls_1_2(directive: Directive) -> bool:
    """Headway speaks TLS 1.2 and 1.3, so httpd must not refuse 1.2. As in mod_ssl, a name without a
    sign replaces what stands before it."""
    allowed: set[str] = set()
    for word in directive.words:
        sign, name = (word[:1], word[1:]) if word[:1] in ("+", "-") else ("", word)
        names = {"tlsv1.2", "tlsv1.3"} if name.lower() == "all" else {name.lower()}
        allowed = allowed - names if sign == "-" else allowed | names if sign else names
    return "tlsv1.2" in allowed


_CONDITIONS: dict[str, Callable[[Directive], bool]] = {
    "acceptpathinfo": _says("on", "default"),
    "addoutputfilterbytype": _compresses,
    "browsermatch": _sets_variables_of_httpd,
    "browsermatchnocase": _sets_variables_of_httpd,
    "dav": _says("off"),
    "httpprotocoloptions": lambda directive: "registeredmethods" not in directive.text.lower(),
    "proxyrequests": _says("off"),
    "requestheader": _unsets_proxy,
    "satisfy": _says("all"),
    "session": _says("off"),
    "setenvif": _sets_variables_of_httpd,
    "setenvifnocase": _sets_variables_of_httpd,
    "setoutputfilter": _compresses,
    "sslfips": _says("off"),
    "sslprotocol": _allows_tls_1_2,
    "sslstrictsnivhostcheck": _says("off"),
    "sslverifyclient": _says("none"),
    "traceenable": _says("on", "extended"),
    "usecanonicalname": _says("off"),
    "userdir": _says("disabled"),
    "xbithack": _says("off"),
}
