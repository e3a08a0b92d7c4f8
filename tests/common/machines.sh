# Two network namespaces with a link between them stand for two machines; for tests that cut the
# link. Sourced; needs root.

# make_machines WORK SUBNET: starts them; SUBNET is the first three numbers of their addresses.
# Fails, with a message, where none can be made. Then $on_first is a prefix for commands on the
# first machine, and $over_machines are mpirun's options for two ranks a machine.
make_machines() {
  first=first$$ second=second$$
  cat >"$1/inside" <<'END'
#!/bin/sh
space=$1; shift
exec ip netns exec "$space" unshare -u sh -c 'hostname "$0" && exec "$@"' "$space" "$@"
END
  # the command that mpirun takes for ssh: HOST COMMAND
  cat >"$1/agent" <<END
#!/bin/sh
space=$second; [ "\$1" = $2.1 ] && space=$first
shift
exec "$1/inside" \$space sh -c "\$*"
END
  chmod +x "$1/inside" "$1/agent"
  on_first="$1/inside $first"
  over_machines="--mca plm_rsh_agent $1/agent --mca btl tcp,self"
  over_machines="$over_machines --mca btl_tcp_if_include $2.0/24"
  over_machines="$over_machines --mca oob_tcp_if_include $2.0/24 --host $2.1:2,$2.2:2"
  unshare -u true && ip netns add $first && ip netns add $second &&
    ip link add va netns $first type veth peer name vb netns $second &&
    ip -n $first addr add "$2.1/24" dev va && ip -n $second addr add "$2.2/24" dev vb &&
    ip -n $first link set va up && ip -n $second link set vb up &&
    ip -n $first link set lo up && ip -n $second link set lo up
}
cut_link() { ip -n $first link set va down; }
mend_link() { ip -n $first link set va up; }
remove_machines() { ip netns del "${first:-}"; ip netns del "${second:-}"; } 2>/dev/null
