# Removes what the lab of one process has made, when that process is gone however it ended.
#
# $1  its process id. Standard input is a pipe that only it writes to: its end is the end of the process. What comes
# through the pipe are folders to remove.
trap '' HUP INT TERM
folders=
while read -r folder; do
	folders="$folders
$folder"
done

# Processes that it started, wherever they are; labs among them have guardians of their own.
for environ in $(grep -lsz "^TURNPIKE_LAB_OWNER=$1\$" /proc/[0-9]*/environ); do
	pid=${environ#/proc/}
	kill -9 "${pid%/environ}"
done
for namespace in /run/netns/tp"$1"w*; do
	[ -e "$namespace" ] || continue
	for pid in $(ip netns pids "${namespace##*/}"); do
		kill -9 "$pid"
	done
	ip netns del "${namespace##*/}"
done
for name in bpffs small-pages huge-pages; do
	for mounted in /run/turnpike-lab/tp"$1"w*/"$name"; do
		[ ! -e "$mounted" ] || umount -l "$mounted"
	done
done
rm -rf /run/turnpike-lab/tp"$1"w* "/run/turnpike-lab/$1.owner"
echo "$folders" | while read -r folder; do
	[ -z "$folder" ] || rm -rf "$folder"
done
