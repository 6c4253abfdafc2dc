package ignition

import (
	"regexp"

	"github.com/coreos/ignition/v2/config/shared/errors"
)

const (
	linkRemedy     = "use the path that the link leads to"
	unitRemedy     = "the name must end in the type of the unit, such as .service"
	hashRemedy     = "use sha512-HASH or sha256-HASH"
	labelRemedy    = "use a shorter label"
	sourceRemedy   = "use a data URL (data:,text) for the contents, or a URL with http, https, s3, arn, gs or tftp"
	dataRemedy     = "write % as %25, a space as %20 and so on, or the contents in base64 after data:;base64,"
	compressRemedy = "use gzip, or remove it"
)

// problemRemedies have what to do about the problems that Ignition finds and does not explain.
var problemRemedies = map[string]string{
	errors.ErrPathRelative.Error():             "use a path that begins with /",
	errors.ErrNoPath.Error():                   "set path",
	errors.ErrDirtyPath.Error():                "write it without //, . and .., and without / at its end",
	errors.ErrDuplicate.Error():                "remove one of them, or merge them",
	errors.ErrInvalidScheme.Error():            sourceRemedy,
	errors.ErrInvalidUrl.Error():               "write it on one line, without other control characters, and with % only before two hexadecimal digits",
	errors.ErrSourceRequired.Error():           "set source",
	errors.ErrFileIllegalMode.Error():          "use a mode from 0 to 07777, which is 4095 in JSON",
	errors.ErrInvalidSystemdExt.Error():        unitRemedy,
	errors.ErrNoSystemdExt.Error():             unitRemedy,
	errors.ErrInvalidSystemdDropinExt.Error():  "the name must end in .conf",
	errors.ErrInvalidInstantiatedUnit.Error():  "use NAME@INSTANCE.service",
	errors.ErrFileUsedSymlink.Error():          linkRemedy,
	errors.ErrDirectoryUsedSymlink.Error():     linkRemedy,
	errors.ErrLinkUsedSymlink.Error():          linkRemedy,
	errors.ErrLinkTargetRequired.Error():       "set target",
	errors.ErrHardLinkToDirectory.Error():      "remove hard",
	errors.ErrOverwriteAndNilSource.Error():    "set contents.source, or remove overwrite",
	errors.ErrVerificationAndNilSource.Error(): "set source, or remove verification",
	errors.ErrCompressionInvalid.Error():       compressRemedy,
	errors.ErrBothIDAndNameSet.Error():         "remove one of both",
	errors.ErrHashMalformed.Error():            hashRemedy,
	errors.ErrHashWrongSize.Error():            hashRemedy,
	errors.ErrHashUnrecognized.Error():         hashRemedy,
	errors.ErrFilesystemInvalidFormat.Error():  "use ext4, btrfs, xfs, vfat, swap or none",
	errors.ErrLabelTooLong.Error():             labelRemedy,
	errors.ErrExt4LabelTooLong.Error():         labelRemedy,
	errors.ErrBtrfsLabelTooLong.Error():        labelRemedy,
	errors.ErrXfsLabelTooLong.Error():          labelRemedy,
	errors.ErrSwapLabelTooLong.Error():         labelRemedy,
	errors.ErrVfatLabelTooLong.Error():         labelRemedy,
	errors.ErrUnrecognizedRaidLevel.Error():    "use linear, raid0, raid1, raid4, raid5, raid6 or raid10",
	errors.ErrPathConflictsSystemd.Error():     "remove the file, or the unit under systemd.units",
	errors.ErrPartitionNumbersCollide.Error():  "use another number for one of them",
	errors.ErrPartitionsOverlap.Error():        "change startMiB or sizeMiB of one of them",
	errors.ErrCexWithClevis.Error():            "remove one of both",
	errors.ErrCexWithKeyFile.Error():           "remove one of both",
	"no filesystem specified":                  "set filesystem to root", // of spec 2
	"invalid data character":                   dataRemedy,
}

var (
	// unusedKey matches what Butane reports for a key that it does not have.
	unusedKey = regexp.MustCompile(`^unused key `)
	// explained matches messages that contain what to do.
	explained = regexp.MustCompile(`\b(must|should|use|remember|required)\b|can be set`)
)

// withRemedy returns a problem of Ignition or Butane with what to do about it.
func withRemedy(message string) string {
	remedy, ok := problemRemedies[message]
	switch {
	case ok:
	case unusedKey.MatchString(message):
		remedy = "correct its name, or remove it"
	case explained.MatchString(message):
		return message
	default:
		remedy = "correct it, or remove it"
	}
	return message + ": " + remedy
}
